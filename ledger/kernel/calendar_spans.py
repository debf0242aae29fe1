"""Cut a time into whole months, days and hours (UTC), as the rollup has them, and the rest at its edges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ledger.kernel.states import RollupTier

#: From coarse to fine.
ORDER = (RollupTier.MONTH, RollupTier.DAY, RollupTier.HOUR)


@dataclass(frozen=True, slots=True)
class CalendarSpan:
    """Name the time [since, until) as rows of one tier, or as single entries where `tier` is None.

    `since` or `until` None: open at that side.
    """

    tier: RollupTier | None
    since: datetime | None
    until: datetime | None


def begin(tier: RollupTier, at: datetime) -> datetime:
    """Return when the hour, day or month (UTC) that contains `at` began."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    if tier is RollupTier.HOUR:
        return hour
    day = hour.replace(hour=0)
    return day if tier is RollupTier.DAY else day.replace(day=1)


def after(tier: RollupTier, began: datetime) -> datetime:
    """Return when the hour, day or month ends that began then."""
    if tier is RollupTier.MONTH:
        return begin(tier, began + timedelta(days=31))
    return began + (timedelta(days=1) if tier is RollupTier.DAY else timedelta(hours=1))


def spans(since: datetime | None, until: datetime | None = None) -> list[CalendarSpan]:
    """Return few spans, in order, that cover the time exactly once."""
    if since is not None and until is not None and until <= since:
        return []
    return _cut(since, until, ORDER)


def _cut(since: datetime | None, until: datetime | None, tiers: tuple[RollupTier, ...]) -> list[CalendarSpan]:
    if not tiers:
        return [CalendarSpan(None, since, until)]
    tier, finer = tiers[0], tiers[1:]
    first = None if since is None else _next(tier, since)
    last = None if until is None else begin(tier, until)
    if first is not None and last is not None and first >= last:
        return _cut(since, until, finer)
    found: list[CalendarSpan] = []
    if since is not None and since != first:
        found += _cut(since, first, finer)
    found.append(CalendarSpan(tier, first, last))
    if until is not None and until != last:
        found += _cut(last, until, finer)
    return found


def _next(tier: RollupTier, at: datetime) -> datetime:
    began = begin(tier, at)
    return at if began == at else after(tier, began)
