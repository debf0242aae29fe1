"""Queries about what sessions that ended have shown."""
