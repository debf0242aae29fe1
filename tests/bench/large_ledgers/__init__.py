"""What large ledgers take."""
