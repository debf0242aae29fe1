"""Submit, quote, remind of and expire requests."""
