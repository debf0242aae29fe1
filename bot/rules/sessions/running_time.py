"""Count how long a session ran: from ready to its end, without its stops and its waits for a replacement."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class TimedRuns(Protocol):
    """What a session's row says of its runs. `ran_s` are the seconds of those that have ended; None: of none."""

    @property
    def ready_at(self) -> datetime | None: ...
    @property
    def stopped_at(self) -> datetime | None: ...
    @property
    def ran_s(self) -> int | None: ...


def seconds_run(session: TimedRuns, until: datetime) -> int | None:
    """Return the seconds that a session ran until a moment; None where it was never ready."""
    if session.ready_at is None or session.stopped_at is not None:
        return session.ran_s
    return (session.ran_s or 0) + max(int((until - session.ready_at).total_seconds()), 0)
