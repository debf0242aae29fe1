"""The policy file: its model, defaults, bounds and validation."""
