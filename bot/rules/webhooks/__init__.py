"""What webhooks subscribe to, and their signatures."""
