"""Compare and complete training runs."""
