"""Time the reminders of an undecided request: after a pause that doubles each time, until it expires."""

from __future__ import annotations

from datetime import datetime, timedelta


def reminders_due(opened_at: datetime, now: datetime, first_s: float) -> int:
    """Count the reminders due by `now`; the n-th comes `first_s` × (2ⁿ - 1) after `opened_at`."""
    if first_s <= 0:
        raise ValueError("the pause before a reminder must be above 0 seconds")
    number = 0
    while _at(opened_at, number + 1, first_s) <= now:
        number += 1
    return number


def next_look(opened_at: datetime, expires_at: datetime, now: datetime, first_s: float) -> datetime:
    """Return when an undecided request needs attention again: its next reminder, or its expiry if that is not later."""
    return min(_at(opened_at, reminders_due(opened_at, now, first_s) + 1, first_s), expires_at)


def _at(opened_at: datetime, number: int, first_s: float) -> datetime:
    return opened_at + timedelta(seconds=first_s * (2**number - 1))
