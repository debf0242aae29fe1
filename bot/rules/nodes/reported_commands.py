"""Judge what an agent reports of its queue's commands: which results are new, and when a command can have run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bot.wire.checkin import QueueCounts, ReportedResult


def times_by(result: ReportedResult, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of a command, cut to what can be true now."""
    ended_at = min(result.ended_at, now)
    return min(result.started_at, ended_at), ended_at


def queue_words(counts: QueueCounts) -> str:
    """Say how far a queue is: `queue 7/12 done, 1 failed`."""
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    return f"queue {counts.done:,}/{counts.total:,} done{failed}"


def twentieths(counts: QueueCounts) -> tuple[int, int]:
    """Say how many twentieths of a queue ended, and whether any failed: below 20 commands each one counts."""
    over = counts.done + counts.failed
    return (over * 20 // counts.total if counts.total > 20 else over), int(counts.failed > 0)


def taken_after(taken: int, results: Sequence[ReportedResult]) -> int:
    """Return how many results are stored after these: an agent continues from there, and no gap is passed over."""
    for one in results:
        if one.index == taken + 1:
            taken = one.index
    return taken
