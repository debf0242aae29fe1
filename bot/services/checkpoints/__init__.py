"""Verify checkpoints before a termination, and hold an instance while one is saved."""
