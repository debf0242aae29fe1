"""A market with random prices, requests that wait, and people who approve in advance."""
