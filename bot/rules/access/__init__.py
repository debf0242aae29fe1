"""Define the scopes of API keys."""
