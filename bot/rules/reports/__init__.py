"""Compute the figures of the digest."""
