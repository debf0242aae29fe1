"""Serve the agent on an instance: enrollment, check-ins, host keys and its API."""
