"""Read what own sessions showed before the market ranks: measured rates, times of starts, and losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from bot.rules.market.own_history import OwnHistory
from bot.rules.sizing.start_times import InstanceHistory, OwnTimes, own_times
from bot.services.market.catalog import ReadRuns
from bot.services.plans.run_history import measured_runs
from bot.wire.checkin import StepOutcome
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from ledger.kernel.end_reason import EndReason
from ledger.models import Instance
from ledger.queries.runs.times import instances_of_ended

#: Sessions that ended before this say little about the machines of today, and more than so many instances add nothing.
REMEMBERED, NEWEST = timedelta(days=90), 500
#: The cloud took the machine away, or it stopped working in use.
_LOST = frozenset({EndReason.LOST, EndReason.BROKEN, EndReason.STOPPED_THERE, EndReason.OUTBID})


def reader(db: Database, clock: Clock) -> ReadRuns:
    """Return the function by which the market reads own sessions."""

    async def read() -> OwnHistory:
        return OwnHistory(tuple(one.run for one in await measured_runs(db)), await session_times(db, clock.now()))

    return read


async def session_times(db: Database, now: datetime) -> OwnTimes:
    """Return how long the machines of ended sessions took to start, and how many were lost."""
    async with db.read() as tx:
        rows = await instances_of_ended(tx, now - REMEMBERED, NEWEST)
    return own_times(_past(rows))


def _past(rows: Iterable[tuple[Instance, Mapping[str, Any] | None]]) -> Iterator[InstanceHistory]:
    """Yield what each instance showed; the rows are in the order of their sessions and creates."""
    before: Instance | None = None
    for row, report in rows:
        lost = before if before is not None and before.session_id == row.session_id and _is_lost(before) else None
        yield InstanceHistory(
            cloud=row.cloud,
            gpu=str(row.offer.get("gpu", "")),
            spot=bool(row.offer.get("spot")),
            boot_s=_between_s(row.sent_at, row.reachable_at),
            hours=(_between_s(row.reachable_at, row.billing_until or row.ended_at) or 0.0) / 3600,
            lost=_is_lost(row),
            wait_s=None if lost is None else _between_s(lost.trouble_at or lost.ended_at, row.sent_at),
            steps=tuple(_steps(report or {})),
        )
        before = row


def _is_lost(row: Instance) -> bool:
    return row.reachable_at is not None and row.outcome_code in _LOST


def _between_s(start: datetime | None, end: datetime | None) -> float | None:
    """Return the seconds between two moments; None where one is not known or they are the wrong way round."""
    if start is None or end is None or end < start:
        return None
    return (end - start).total_seconds()


def _steps(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the steps of a start-up that were done, each with its seconds."""
    for one in report.get("steps", ()):
        if one.get("state") == StepOutcome.DONE:
            yield str(one["name"]), float(one.get("seconds", 0))
