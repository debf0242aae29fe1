"""Filter, price, score and rank offers."""
