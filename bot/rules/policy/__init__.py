"""Define the policy file: its model, defaults, bounds and validation."""
