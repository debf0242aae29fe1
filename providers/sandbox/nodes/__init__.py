"""Sandbox instances that are real process trees on this machine: a folder, a start script, an agent, an SSH server."""
