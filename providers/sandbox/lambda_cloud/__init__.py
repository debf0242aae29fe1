"""Lambda, served locally."""
