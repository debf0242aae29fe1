"""Build messages, one module each: builders turn rows and views into a `Message`; they read and decide nothing."""
