"""Fetch, cache, check and show the offers of all clouds."""
