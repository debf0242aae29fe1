"""Notifications that services put into the outbox."""
