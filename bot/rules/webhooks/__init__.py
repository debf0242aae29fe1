"""Define what webhooks subscribe to, and their signatures."""
