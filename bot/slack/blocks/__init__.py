"""One module per message. Builders take rows and views and return a `Message`; they ask nobody and decide nothing."""
