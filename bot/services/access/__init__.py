"""Authorize people and programs: ownership, delegation, API keys and SSH keys."""
