"""Manage a session from ready to its end: extension, expiration, idle termination, overspend, retained disks."""
