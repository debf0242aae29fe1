"""A time cut into whole months, days and hours (UTC), as the rollup has them, and what is left at its edges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ledger.kernel.states import Tier

#: From coarse to fine.
ORDER = (Tier.MONTH, Tier.DAY, Tier.HOUR)


@dataclass(frozen=True, slots=True)
class Span:
    """[since, until): rows of one tier, or single entries where `tier` is None. None: without that end."""

    tier: Tier | None
    since: datetime | None
    until: datetime | None


def begin(tier: Tier, at: datetime) -> datetime:
    """When the hour, day or month (UTC) began that `at` lies in."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    if tier is Tier.HOUR:
        return hour
    day = hour.replace(hour=0)
    return day if tier is Tier.DAY else day.replace(day=1)


def after(tier: Tier, began: datetime) -> datetime:
    """When the hour, day or month ends that began then."""
    if tier is Tier.MONTH:
        return begin(tier, began + timedelta(days=31))
    return began + (timedelta(days=1) if tier is Tier.DAY else timedelta(hours=1))


def spans(since: datetime | None, until: datetime | None = None) -> list[Span]:
    """The time as few spans, in order, that cover it exactly once."""
    if since is not None and until is not None and until <= since:
        return []
    return _cut(since, until, ORDER)


def _cut(since: datetime | None, until: datetime | None, tiers: tuple[Tier, ...]) -> list[Span]:
    if not tiers:
        return [Span(None, since, until)]
    tier, finer = tiers[0], tiers[1:]
    first = None if since is None else _next(tier, since)
    last = None if until is None else begin(tier, until)
    if first is not None and last is not None and first >= last:
        return _cut(since, until, finer)
    found: list[Span] = []
    if since is not None and since != first:
        found += _cut(since, first, finer)
    found.append(Span(tier, first, last))
    if until is not None and until != last:
        found += _cut(last, until, finer)
    return found


def _next(tier: Tier, at: datetime) -> datetime:
    began = begin(tier, at)
    return at if began == at else after(tier, began)
