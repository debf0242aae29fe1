"""Judge what an agent reports of its queue's commands: which results are new, and when a command can have run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ReportedResult:
    """How one command of a queue ended, as its machine says. `index` counts its results from 1, as they came."""

    index: int
    number: int
    gpu: int
    exit_code: int | None
    attempts: int
    started_at: datetime
    ended_at: datetime
    log_tail: str = ""

    def times_by(self, now: datetime) -> tuple[datetime, datetime]:
        """Return its start and its end, cut to what can be true now."""
        ended_at = min(self.ended_at, now)
        return min(self.started_at, ended_at), ended_at


def taken_after(taken: int, results: Sequence[ReportedResult]) -> int:
    """Return how many results are stored after these: an agent continues from there, and no gap is passed over."""
    for one in results:
        if one.index == taken + 1:
            taken = one.index
    return taken
