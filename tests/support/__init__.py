"""Helpers that tests share: databases, a stepped clock, builders of valid rows, and the network guard."""
