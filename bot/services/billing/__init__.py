"""Meter running instances, true up against cloud bills, and read costs."""
