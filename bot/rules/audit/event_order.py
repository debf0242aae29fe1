"""Judge whether an event was recorded late."""

from __future__ import annotations

from datetime import datetime, timedelta

#: An event has its number within a second of its commit. Only one whose commit was delayed, whose process stopped, or
#: that somebody wrote afterwards is numbered later than this.
LATE_AFTER = timedelta(hours=1)


def is_late(at: datetime, numbered_at: datetime | None) -> bool:
    """Whether an event was numbered more than an hour after its own time; None where the order is younger than it."""
    return numbered_at is not None and numbered_at - at > LATE_AFTER
