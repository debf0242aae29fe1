"""Sum up everybody's costs in windows of the local calendar, in one read of the rollup.

A day of such a calendar is no day of UTC. A border is rounded up to a full hour: an hour counts for the window that it
begins in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise, starmap
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    func,
    literal,
    select,
    true,
    type_coerce,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.calendar_spans import begin
from ledger.kernel.columns import MicroUsd
from ledger.kernel.entry_kind import SPENT
from ledger.kernel.states import RollupTier
from ledger.models import Facet, LedgerEntry, Rollup, Unrolled
from ledger.queries.rollup import AMOUNT, FACETS, by_facet_id, days_and_hours, raw, waiting

_HOUR = timedelta(hours=1)
_AMOUNT: ColumnElement[Decimal] = type_coerce(Rollup.amount_usd, MicroUsd)

Between = tuple[datetime, datetime]
Shares = dict[str, list[tuple[str, Decimal]]]


@dataclass(frozen=True, slots=True)
class _Segment:
    """Cut [since, until) into days of UTC, `first` to `last`, and hours: `more` are added, `less` subtracted."""

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
    hour = begin(RollupTier.HOUR, at)
    return hour if hour == at else hour + _HOUR


def _midnight(at: datetime) -> datetime:
    """Return the nearest midnight (UTC), so that few hours are read one by one."""
    return begin(RollupTier.DAY, at + timedelta(hours=12))


def _hours(since: datetime, until: datetime) -> list[datetime]:
    """Return the hours of [since, until), two full hours; none where that ends before it begins."""
    return [since + n * _HOUR for n in range(max(0, (until - since) // _HOUR))]


async def costs_within(tx: AsyncSession, windows: Sequence[Between], by: Collection[str]) -> list[Shares]:
    """Return dollars booked in each window per value of each facet in `by`, the greatest first; from one read.

    The windows' borders cut the time into segments, so that a row is read once, however many windows it lies in.
    """
    asked = [(_full(since), _full(until)) for since, until in windows]
    segments = list(starmap(_segment, pairwise(sorted({border for both in asked for border in both}))))
    summed: dict[str, dict[str, Sequence[Decimal | None]]] = {name: {} for name in by}
    if segments:
        for name, value, *amounts in await tx.execute(_shares(segments, by)):
            summed[name][value] = amounts
    return [{name: _within(summed[name], segments, both) for name in by} for both in asked]


def _within(
    summed: Mapping[str, Sequence[Decimal | None]], segments: Sequence[_Segment], window: Between
) -> list[tuple[str, Decimal]]:
    inside = [n for n, one in enumerate(segments) if window[0] <= one.since and one.until <= window[1]]
    totals = ((value, sum((parts[n] or Decimal(0) for n in inside), Decimal(0))) for value, parts in summed.items())
    return sorted(((value, usd) for value, usd in totals if usd), key=lambda one: (-one[1], one[0]))


def _shares(segments: Sequence[_Segment], by: Collection[str]) -> Any:
    """Build the statement for `(facet, value, dollars of the first segment, of the second, ...)`."""
    every = union_all(*_folded(segments, by), _entries(segments, by)).cte("every")
    totals = [func.sum(every.c[_name(n)]).label(_name(n)) for n in range(len(segments))]
    each: list[Any] = []
    for name in by:
        value = every.c[name].label("name")
        each.append(select(literal(name).label("by"), value, *totals).group_by(value))
    found = union_all(*each).subquery()
    amounts = [type_coerce(found.c[_name(n)], MicroUsd) for n in range(len(segments))]
    return select(found.c.by, found.c.name, *amounts)


def _name(segment: int) -> str:
    return f"amount_{segment}"


def _folded(segments: Sequence[_Segment], by: Collection[str]) -> list[Select[Any]]:
    """Read each segment from the rollup per facet: from days, each read once, and from single hours.

    Both are summed before they are put together: PostgreSQL has no statistics on rows that come from a union, and it
    would share out the sums among workers and add up each of them twice.
    """
    last = len(segments) - 1
    days = [_days(one, n == 0, n == last) for n, one in enumerate(segments)]
    of_days = (Rollup.tier == RollupTier.DAY, Rollup.begins >= segments[0].first, Rollup.begins < segments[-1].last)
    found = [_named(days, and_(*of_days), by)]
    if read := sorted({hour for one in segments for hour in (*one.more, *one.less)}):
        hours = [_single(one) for one in segments]
        found.append(_named(hours, and_(Rollup.tier == RollupTier.HOUR, Rollup.begins.in_(read)), by))
    return found


def _named(amounts: Sequence[ColumnElement[Any]], where: ColumnElement[bool], by: Collection[str]) -> Select[Any]:
    """Sum rows of the rollup per facet; its values are looked up after the sums."""
    summed = by_facet_id(*(func.sum(one).label(_name(n)) for n, one in enumerate(amounts)), where=where).subquery()
    values = [getattr(Facet, name).label(name) for name in by]
    query: Any = select(*values, *(summed.c[_name(n)] for n in range(len(amounts))))
    return query.join(Facet, Facet.id == summed.c.facet)  # type: ignore[no-any-return]  # SQLAlchemy's own types.


def _days(one: _Segment, first: bool, last: bool) -> ColumnElement[Any]:
    """Add a day's row to a segment; none is read from before the first segment or after the last one."""
    begun = [] if first else [Rollup.begins >= one.first]
    over = [] if last else [Rollup.begins < one.last]
    return case((and_(true(), *begun, *over), _AMOUNT))


def _single(one: _Segment) -> ColumnElement[Any]:
    """Add an hour's row to a segment, or subtract it."""
    return case((Rollup.begins.in_(one.more), _AMOUNT), (Rollup.begins.in_(one.less), -_AMOUNT))


def _entries(segments: Sequence[_Segment], by: Collection[str]) -> Select[Any]:
    """Sum the entries that wait to be folded, per facet and segment."""
    of_facet = [FACETS[name].label(name) for name in by]
    sums = [
        func.sum(case((and_(LedgerEntry.at >= one.since, LedgerEntry.at < one.until), AMOUNT))).label(_name(n))
        for n, one in enumerate(segments)
    ]
    waits = waiting(Unrolled.at >= segments[0].since, Unrolled.at < segments[-1].until)
    query = raw(*of_facet, *sums)
    return query.where(LedgerEntry.kind.in_(SPENT), waits).group_by(*(FACETS[name] for name in by))


async def by_borders(tx: AsyncSession, borders: Sequence[datetime]) -> list[Decimal]:
    """Return everybody's dollars between consecutive borders, in order, from UTC days and a few hours."""
    full = [_full(border) for border in borders]
    midnights = [_midnight(border) for border in full]
    between = {b: _hours(min(b, m), max(b, m)) for b, m in zip(full, midnights, strict=True)}
    days, hours = await days_and_hours(
        tx, (midnights[0], midnights[-1]), {hour for some in between.values() for hour in some}
    )
    sums = []
    for border, midnight in zip(full, midnights, strict=True):
        before = sum((amount for began, amount in days.items() if began < midnight), Decimal(0))
        rest = sum((hours.get(hour, Decimal(0)) for hour in between[border]), Decimal(0))
        sums.append(before + rest if border > midnight else before - rest)
    return [after - before for before, after in pairwise(sums)]
