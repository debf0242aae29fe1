"""A create whose outcome is unclear: how long its instance is searched for."""

from __future__ import annotations

from datetime import timedelta

from providers.capabilities import Capabilities


def quarantine(capabilities: Capabilities, *, floor_s: float = 300.0) -> timedelta:
    """W: how long an unseen create stays UNKNOWN before it becomes a TOMBSTONE: max(floor, 10 × visibility lag)."""
    return timedelta(seconds=max(floor_s, 10.0 * capabilities.visibility_lag_s))
