"""Deliver the outbox, and wait for notifications before a termination."""
