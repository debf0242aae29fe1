"""The agent on a node: enrollment, check-ins, host keys and its API."""
