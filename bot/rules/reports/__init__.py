"""The figures of the digest."""
