"""Scopes of API keys."""
