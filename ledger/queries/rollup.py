"""Sum up costs by the hour, day and month: one job folds entries into the rollup, and reads add the waiting ones.

The sum of both is the raw sum at every moment, in one statement and so in one state of the ledger. A test proves it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    true,
    type_coerce,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_rollup
from ledger.engine.db import insert_for
from ledger.kernel.calendar_spans import ORDER, CalendarSpan, begin
from ledger.kernel.columns import MicroUsd
from ledger.kernel.entry_kind import SPENT, EntryKind
from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.states import RollupTier
from ledger.models import (
    Base,
    EntryHash,
    ExternalCost,
    Facet,
    Instance,
    LedgerEntry,
    Orphan,
    Rollup,
    Session,
    Transfer,
    Unrolled,
)

#: What an entry adds to what was spent: a correction that gives money back is booked in the other direction.
AMOUNT: ColumnElement[Decimal] = type_coerce(
    case(
        (LedgerEntry.debit.startswith("payable:"), -type_coerce(LedgerEntry.amount_usd, MicroUsd)),
        else_=LedgerEntry.amount_usd,
    ),
    MicroUsd,
)
TOTAL: ColumnElement[Decimal] = type_coerce(func.sum(AMOUNT), MicroUsd)

#: The columns of an entry that its hash covers.
HASHED_COLUMNS: Sequence[Any] = (
    LedgerEntry.id,
    LedgerEntry.key,
    LedgerEntry.kind,
    LedgerEntry.debit,
    LedgerEntry.credit,
    LedgerEntry.amount_usd,
    LedgerEntry.at,
    LedgerEntry.session_id,
    LedgerEntry.instance_id,
    LedgerEntry.component,
    LedgerEntry.note,
)

#: The orphan that a loss belongs to: where money of a loss is given back, the account is on the other side.
ORPHAN_ID = func.substr(
    case((LedgerEntry.debit.startswith("loss:"), LedgerEntry.debit), else_=LedgerEntry.credit), len("loss:") + 1
)

_NONE = literal("")
#: Who owned the session at the time of the entry, where it was transferred after that.
_EARLIER_OWNER = (
    select(Transfer.from_owner)
    .where(Transfer.session_id == LedgerEntry.session_id, Transfer.state == TransferState.ACCEPTED)
    .where(Transfer.closed_at >= LedgerEntry.at)
    .order_by(Transfer.closed_at)
    .limit(1)
    .correlate(LedgerEntry)
    .scalar_subquery()
)
#: What an entry's money was spent on, from the rows that it speaks of.
FACETS: Mapping[str, ColumnElement[str]] = {
    "owner": func.coalesce(_EARLIER_OWNER, Session.owner, ExternalCost.owner, _NONE),
    "cloud": func.coalesce(Instance.cloud, Orphan.cloud, ExternalCost.provider, _NONE),
    "gpu": func.coalesce(Session.gpu, _NONE),
    "label": func.coalesce(Session.label, _NONE),
    "tool": func.coalesce(ExternalCost.skill, _NONE),
}
_OF_FACET: Mapping[str, Any] = {name: getattr(Facet, name) for name in FACETS}

Key = tuple[str, ...]
MakeHash = Callable[[str, Mapping[str, Any]], str]


def raw(*columns: Any) -> Select[Any]:
    """Build a query over entries with everything that their facets are read from."""
    return (
        select(*columns)
        .select_from(LedgerEntry)
        .outerjoin(Session, Session.id == LedgerEntry.session_id)
        .outerjoin(Instance, Instance.id == LedgerEntry.instance_id)
        .outerjoin(Orphan, and_(LedgerEntry.kind == EntryKind.LOSS, Orphan.id == ORPHAN_ID))
        .outerjoin(ExternalCost, ExternalCost.entry_id == LedgerEntry.id)
    )


def waiting(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Build the condition for entries that are not folded yet; SQLite looks up only these few."""
    return LedgerEntry.id.in_(select(Unrolled.entry_id).where(*conditions))


def _within(column: Any, since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    found = [] if since is None else [column >= since]
    return found if until is None else [*found, column < until]


def _every(
    parts: list[CalendarSpan],
    by: Collection[str],
    on_facet: Collection[ColumnElement[bool]],
    on_entry: Collection[ColumnElement[bool]],
) -> Any:
    """Sum dollars in these spans by the facets `by`, in one row or more of each; the conditions say whose."""
    whole = [span for span in parts if span.tier is not None]
    edges = [span for span in parts if span.tier is None]
    queries: list[Any] = []
    if whole:
        of_tier = [and_(Rollup.tier == span.tier, *_within(Rollup.begins, span.since, span.until)) for span in whole]
        amount = func.sum(Rollup.amount_usd).label("amount")
        query = by_facet_id(amount, where=or_(*of_tier))
        if on_facet:
            query = query.where(Rollup.facet_id.in_(select(Facet.id).where(*on_facet)))
        summed = query.subquery()
        columns = [_OF_FACET[name].label(name) for name in by]
        queries.append(select(*columns, summed.c.amount).join(Facet, Facet.id == summed.c.facet))
        waits = [and_(true(), *_within(Unrolled.at, span.since, span.until)) for span in whole]
        queries.append(_entries(by, on_entry).where(waiting(or_(*waits))))
    if edges:
        at_edge = [and_(true(), *_within(LedgerEntry.at, span.since, span.until)) for span in edges]
        queries.append(_entries(by, on_entry).where(or_(*at_edge)))
    return union_all(*queries)


def by_facet_id(*sums: ColumnElement[Any], where: ColumnElement[bool]) -> Select[Any]:
    """Build a query that sums rows of the rollup per `facet`, the id of a facet.

    Grouped by an expression, or SQLite would read the whole index of facets to have the groups in order.
    """
    facet = Rollup.facet_id + literal_column("0")
    return select(facet.label("facet"), *sums).where(where).group_by(facet)


def sums_of(
    parts: list[CalendarSpan],
    by: tuple[str, ...],
    on_facet: Collection[ColumnElement[bool]],
    on_entry: Collection[ColumnElement[bool]],
) -> Select[Any]:
    """Build the statement for dollars spent in these spans per combination of the facets `by`.

    The conditions say whose.
    """
    every = _every(parts, by, on_facet, on_entry).subquery()
    total = type_coerce(func.sum(every.c.amount), MicroUsd)
    return select(*(every.c[name] for name in by), total).group_by(*(every.c[name] for name in by))


def shares_of(
    parts: list[CalendarSpan],
    by: Collection[str],
    on_facet: Collection[ColumnElement[bool]],
    on_entry: Collection[ColumnElement[bool]],
) -> Any:
    """Build the statement for `(facet, value, dollars)` of each value of each facet in `by`, each facet summed alone.

    The database adds up: a month has tens of thousands of combinations, and a few hundred values.
    """
    every = _every(parts, by, on_facet, on_entry).cte("every")
    each = [
        select(
            literal(name).label("by"), every.c[name].label("name"), func.sum(every.c.amount).label("amount")
        ).group_by(every.c[name])
        for name in by
    ]
    found = union_all(*each).subquery()
    return select(found.c.by, found.c.name, type_coerce(found.c.amount, MicroUsd))


def _entries(by: Collection[str], on_entry: Collection[ColumnElement[bool]]) -> Select[Any]:
    query = raw(*(FACETS[name].label(name) for name in by), func.sum(AMOUNT).label("amount"))
    return query.where(LedgerEntry.kind.in_(SPENT), *on_entry).group_by(*(FACETS[name] for name in by))


async def daily(
    tx: AsyncSession,
    tier: RollupTier,
    since: datetime,
    until: datetime,
    on_facet: Collection[ColumnElement[bool]] = (),
    on_entry: Collection[ColumnElement[bool]] = (),
) -> dict[datetime, Decimal]:
    """Return dollars per hour, day or month, by when it began; both ends must be such a beginning."""
    query: Any = select(Rollup.begins, func.sum(Rollup.amount_usd)).where(
        Rollup.tier == tier, Rollup.begins >= since, Rollup.begins < until
    )
    if on_facet:
        query = query.where(Rollup.facet_id.in_(select(Facet.id).where(*on_facet)))
    found: defaultdict[datetime, Decimal] = defaultdict(Decimal)
    for began, amount_usd in await tx.execute(query.group_by(Rollup.begins)):
        found[began] += amount_usd
    waits = waiting(Unrolled.at >= since, Unrolled.at < until)
    query = raw(LedgerEntry.at, AMOUNT).where(LedgerEntry.kind.in_(SPENT), waits, *on_entry)
    for at, amount_usd in await tx.execute(query):
        found[begin(tier, at)] += amount_usd
    return dict(found)


async def days_and_hours(
    tx: AsyncSession, days: tuple[datetime, datetime], hours: Collection[datetime]
) -> tuple[dict[datetime, Decimal], dict[datetime, Decimal]]:
    """Return everybody's dollars in each day (UTC) between two midnights, and in single hours, by when each began."""
    of_day = and_(Rollup.tier == RollupTier.DAY, *_within(Rollup.begins, *days))
    of_hour = and_(Rollup.tier == RollupTier.HOUR, Rollup.begins.in_(list(hours)))
    folded = select(Rollup.tier, Rollup.begins, func.sum(Rollup.amount_usd)).where(or_(of_day, of_hour))
    found: dict[RollupTier, defaultdict[datetime, Decimal]] = {
        tier: defaultdict(Decimal) for tier in (RollupTier.DAY, RollupTier.HOUR)
    }
    for tier, began, amount_usd in await tx.execute(folded.group_by(Rollup.tier, Rollup.begins)):
        found[tier][began] += amount_usd
    few = raw(LedgerEntry.at, AMOUNT).where(LedgerEntry.kind.in_(SPENT), waiting(true()))
    for at, amount_usd in await tx.execute(few):
        day, hour = begin(RollupTier.DAY, at), begin(RollupTier.HOUR, at)
        if days[0] <= day < days[1]:
            found[RollupTier.DAY][day] += amount_usd
        if hour in hours:
            found[RollupTier.HOUR][hour] += amount_usd
    return dict(found[RollupTier.DAY]), dict(found[RollupTier.HOUR])


async def fold(tx: AsyncSession, limit: int, make_hash: MakeHash) -> int:
    """Move at most `limit` waiting entries into the rollup and the hash chain; return how many.

    No other process folds until the transaction ends. `make_hash` makes an entry's hash from the one before it and the
    entry's columns.
    """
    await lock_rollup(tx)
    first = select(Unrolled.entry_id).order_by(Unrolled.entry_id).limit(limit)
    waiting = raw(*HASHED_COLUMNS, AMOUNT, *FACETS.values()).where(LedgerEntry.id.in_(first)).order_by(LedgerEntry.id)
    found: Any = (await tx.execute(waiting)).all()
    if not found:
        return 0
    added: defaultdict[tuple[Key, RollupTier, datetime], Decimal] = defaultdict(Decimal)
    last = (await tx.execute(select(EntryHash).order_by(EntryHash.number.desc()).limit(1))).scalar_one_or_none()
    number, before = (last.number, last.hash) if last else (0, "")
    links, names, width = [], [column.key for column in HASHED_COLUMNS], len(HASHED_COLUMNS)
    for row in found:
        entry = dict(zip(names, row[:width], strict=True))
        number, before = number + 1, make_hash(before, entry)
        links.append({"number": number, "entry_id": entry["id"], "hash": before})
        if entry["kind"] in SPENT:
            facet = tuple(row[width + 1 :])
            for tier in ORDER:
                added[facet, tier, begin(tier, entry["at"])] += row[width]
    await add(tx, added)
    await tx.execute(insert(_table(EntryHash)), links)
    await tx.execute(delete(_table(Unrolled)).where(Unrolled.entry_id.in_([link["entry_id"] for link in links])))
    return len(links)


async def add(tx: AsyncSession, amounts: Mapping[tuple[Key, RollupTier, datetime], Decimal]) -> None:
    """Add these dollars to the rollup."""
    if not amounts:
        return
    rows = [dict(zip(FACETS, key, strict=True)) for key in sorted({key for key, _, _ in amounts})]
    await tx.execute(insert_for(tx, _table(Facet)).on_conflict_do_nothing(index_elements=list(FACETS)), rows)
    owners = {row["owner"] for row in rows}
    known = await tx.execute(select(Facet.id, *_OF_FACET.values()).where(Facet.owner.in_(owners)))
    ids = {tuple(key): facet_id for facet_id, *key in known}
    adding = insert_for(tx, _table(Rollup))
    grown = adding.on_conflict_do_update(
        index_elements=["tier", "begins", "facet_id"],
        set_={"amount_usd": Rollup.amount_usd + adding.excluded.amount_usd},
    )
    sums = [
        {"tier": tier, "begins": began, "facet_id": ids[key], "amount_usd": amount_usd}
        for (key, tier, began), amount_usd in amounts.items()
    ]
    await tx.execute(grown, sums)


def _table(model: type[Base]) -> Any:
    """Return a model's table: rows go into it without objects of the model, because there are many."""
    return model.__table__
