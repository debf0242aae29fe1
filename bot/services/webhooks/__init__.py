"""Manage webhook subscriptions and deliver their messages."""
