"""Queries about people on machines: their keys there, and transfers."""
