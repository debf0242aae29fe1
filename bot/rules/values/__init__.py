"""Hold small values and phrases that every rule uses."""
