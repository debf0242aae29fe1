"""Everybody's costs in windows of people's own calendar, whose days are no days of UTC, in one read of the rollup.

A border is rounded up to a full hour: an hour counts for the window that it begins in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise, starmap
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, and_, case, func, literal, or_, select, type_coerce, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.columns import MicroUsd
from ledger.models import Facet, LedgerEntry, Rollup, Unrolled
from ledger.rollup import AMOUNT, FACETS, SPENT, by_facet_id, daily, hourly, raw, waiting
from ledger.spans import begin
from ledger.states import Tier

_HOUR = timedelta(hours=1)

Between = tuple[datetime, datetime]
Shares = dict[str, list[tuple[str, Decimal]]]


@dataclass(frozen=True, slots=True)
class _Segment:
    """[since, until) as whole days of UTC, `first` to `last`, and single hours that are added or taken off."""

    since: datetime
    until: datetime
    first: datetime
    last: datetime
    more: list[datetime]
    less: list[datetime]


def _segment(since: datetime, until: datetime) -> _Segment:
    first, last = _midnight(since), _midnight(until)
    hours = Counter([*_hours(since, first), *_hours(last, until)])
    hours.subtract([*_hours(first, since), *_hours(until, last)])
    more = sorted(hour for hour, times in hours.items() if times > 0)
    return _Segment(since, until, first, last, more, sorted(hour for hour, times in hours.items() if times < 0))


def _full(at: datetime) -> datetime:
    hour = begin(Tier.HOUR, at)
    return hour if hour == at else hour + _HOUR


def _midnight(at: datetime) -> datetime:
    """The midnight (UTC) next to it, so that few hours are read one by one."""
    return begin(Tier.DAY, at + timedelta(hours=12))


def _hours(since: datetime, until: datetime) -> list[datetime]:
    """The hours of [since, until), two full hours; none where that ends before it begins."""
    return [since + n * _HOUR for n in range(max(0, (until - since) // _HOUR))]


async def costs_within(tx: AsyncSession, windows: Sequence[Between], by: Collection[str]) -> list[Shares]:
    """Dollars booked in each window per value of each facet in `by`, the greatest first; from one read.

    The windows' borders cut the time into segments, so that a row is read once, however many windows it lies in.
    """
    asked = [(_full(since), _full(until)) for since, until in windows]
    segments = list(starmap(_segment, pairwise(sorted({border for both in asked for border in both}))))
    summed: dict[str, dict[str, dict[int, Decimal]]] = {name: {} for name in by}
    if segments:
        for name, value, segment, amount_usd in await tx.execute(_shares(segments, by)):
            summed[name].setdefault(value, {})[segment] = amount_usd
    return [{name: _within(summed[name], segments, both) for name in by} for both in asked]


def _within(
    summed: Mapping[str, Mapping[int, Decimal]], segments: Sequence[_Segment], window: Between
) -> list[tuple[str, Decimal]]:
    inside = [n for n, one in enumerate(segments) if window[0] <= one.since and one.until <= window[1]]
    totals = ((value, sum((parts.get(n, Decimal(0)) for n in inside), Decimal(0))) for value, parts in summed.items())
    return sorted(((value, usd) for value, usd in totals if usd), key=lambda one: (-one[1], one[0]))


def _shares(segments: Sequence[_Segment], by: Collection[str]) -> Any:
    """The statement for `(facet, value, number of the segment, dollars)`."""
    folded: list[Any] = []
    for n, one in enumerate(segments):
        days = and_(Rollup.tier == Tier.DAY, Rollup.begins >= one.first, Rollup.begins < one.last)
        folded.append(_folded(n, func.sum(Rollup.amount_usd), or_(days, _single(one.more)), by))
        if one.less:
            folded.append(_folded(n, -func.sum(type_coerce(Rollup.amount_usd, MicroUsd)), _single(one.less), by))
    every = union_all(*folded, _entries(segments, by)).cte("every")
    total = func.sum(every.c.amount).label("amount")
    each: list[Any] = []
    for name in by:
        value, segment = every.c[name].label("name"), every.c.segment
        each.append(select(literal(name).label("by"), value, segment, total).group_by(value, segment))
    found = union_all(*each).subquery()
    return select(found.c.by, found.c.name, found.c.segment, type_coerce(found.c.amount, MicroUsd))


def _single(hours: Collection[datetime]) -> ColumnElement[bool]:
    return and_(Rollup.tier == Tier.HOUR, Rollup.begins.in_(hours))


def _folded(n: int, amount: ColumnElement[Any], where: ColumnElement[bool], by: Collection[str]) -> Select[Any]:
    """What the rollup has of a segment, per facet."""
    summed = by_facet_id(amount.label("amount"), where=where).subquery()
    names = [getattr(Facet, name).label(name) for name in by]
    query: Any = select(*names, literal(n, Integer).label("segment"), summed.c.amount)
    return query.join(Facet, Facet.id == summed.c.facet)  # type: ignore[no-any-return]  # SQLAlchemy's own types.


def _entries(segments: Sequence[_Segment], by: Collection[str]) -> Select[Any]:
    """What waits to be folded, per facet and segment."""
    of_facet = [FACETS[name].label(name) for name in by]
    number = case(*((LedgerEntry.at < one.until, n) for n, one in enumerate(segments)))
    waits = waiting(Unrolled.at >= segments[0].since, Unrolled.at < segments[-1].until)
    query = raw(*of_facet, number.label("segment"), func.sum(AMOUNT).label("amount"))
    return query.where(LedgerEntry.kind.in_(SPENT), waits).group_by(*(FACETS[name] for name in by), number)


async def by_borders(tx: AsyncSession, borders: Sequence[datetime]) -> list[Decimal]:
    """Everybody's dollars between each two borders, in order: from whole days of UTC and a few hours of each border."""
    full = [_full(border) for border in borders]
    midnights = [_midnight(border) for border in full]
    days = await daily(tx, Tier.DAY, midnights[0], midnights[-1]) if midnights[0] < midnights[-1] else {}
    between = {b: _hours(min(b, m), max(b, m)) for b, m in zip(full, midnights, strict=True)}
    hours = await hourly(tx, {hour for some in between.values() for hour in some})
    sums = []
    for border, midnight in zip(full, midnights, strict=True):
        before = sum((amount for began, amount in days.items() if began < midnight), Decimal(0))
        rest = sum((hours.get(hour, Decimal(0)) for hour in between[border]), Decimal(0))
        sums.append(before + rest if border > midnight else before - rest)
    return [after - before for before, after in pairwise(sums)]
