"""Vast.ai, served locally."""
