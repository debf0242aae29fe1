"""Offers of all clouds: fetched, cached, checked and shown."""
