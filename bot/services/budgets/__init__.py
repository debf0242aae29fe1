"""Budget limits and their enforcement."""
