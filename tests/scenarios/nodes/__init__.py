"""Walks over machines that are real processes: their start script, their agent, their SSH server."""
