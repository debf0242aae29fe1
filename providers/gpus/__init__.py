"""The table of GPUs and their names."""
