"""Deterministic simulation: one seed is one history of requests, sessions, faults and crashes, the same each time."""
