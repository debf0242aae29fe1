"""Hours, price caps and spend limits."""
