"""Build the messages about one session: ready, its status, its warnings, its end, and its transfer."""
