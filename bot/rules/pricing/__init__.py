"""Judge hours, price caps and spend limits."""
