"""Small values and phrases that every rule uses."""
