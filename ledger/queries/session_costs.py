"""Sum up amounts of single sessions: what is booked of each instance, and what extensions add to a grant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, literal, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.kernel.columns import MicroUsd
from ledger.kernel.entry_kind import USED, EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState
from ledger.models import GrantRow, Instance, LedgerEntry, Request, Session
from ledger.queries.lookups import session_of
from ledger.queries.rollup import TOTAL

#: Ids of some sessions, or the query that finds them.
Ids = Collection[str] | Select[Any]

_HOUR = and_(LedgerEntry.kind == EntryKind.ACCRUE, LedgerEntry.key.like("%/h%"), LedgerEntry.key.not_like("%/disk/%"))
#: Whole hours among some entries of one component of an instance; a retained disk counts its own.
HOURS: ColumnElement[int] = func.sum(case((_HOUR, 1), else_=0))


@dataclass(frozen=True, slots=True)
class Booked:
    """Hold what is booked of one instance: dollars in all, its whole hours by component, and until when."""

    usd: Decimal = Decimal(0)
    hours: Mapping[str, int] = field(default_factory=dict)
    until: datetime | None = None


NOTHING = Booked()


async def booked_of(tx: AsyncSession, session_ids: Ids) -> dict[str, dict[str, Booked]]:
    """Return what is booked as used of each instance of these sessions, by session and instance, from one query."""
    found: defaultdict[str, dict[str, Booked]] = defaultdict(dict)
    rows: Any = await tx.execute(
        select(
            LedgerEntry.session_id,
            LedgerEntry.instance_id,
            LedgerEntry.component,
            TOTAL,
            HOURS,
            func.max(LedgerEntry.at),
        )
        .where(LedgerEntry.session_id.in_(session_ids), LedgerEntry.kind.in_(USED))
        .group_by(LedgerEntry.session_id, LedgerEntry.instance_id, LedgerEntry.component)
    )
    for session_id, instance_id, component, usd, hours, until in rows:
        before = found[session_id].get(instance_id, NOTHING)
        found[session_id][instance_id] = Booked(
            before.usd + usd,
            {**before.hours, component: int(hours)},
            until if before.until is None else max(before.until, until),
        )
    return dict(found)


async def booked(tx: AsyncSession, row: Instance) -> Booked:
    """Return what is booked of one instance."""
    of_session = await booked_of(tx, [row.session_id])
    return of_session.get(row.session_id, {}).get(row.id, NOTHING)


_GIVEN_BACK = aliased(LedgerEntry)
#: Whether what a grant set aside was given back: then it covers nothing more.
RELEASED: ColumnElement[bool] = (
    select(_GIVEN_BACK.id).where(_GIVEN_BACK.key == literal("release/").concat(GrantRow.id)).exists()
)


async def extension_caps(tx: AsyncSession, session_ids: Ids) -> dict[str, Decimal]:
    """Return by session the dollars that its extensions add to the grant of its running instance.

    When that instance is gone they are given back with its grant: its replacement's grant holds what was left of both.
    """
    mine = (GrantRow.session_id.in_(session_ids), GrantRow.kind == GrantKind.EXTEND, GrantRow.state != GrantState.VOID)
    query = select(GrantRow.session_id, func.sum(GrantRow.total_cap_usd)).where(*mine, ~RELEASED)
    rows: Any = await tx.execute(query.group_by(GrantRow.session_id))
    return dict(rows.all())


async def extension_cap(tx: AsyncSession, session_id: str) -> Decimal:
    """Return the dollars that extensions add to the grant of one session."""
    return (await extension_caps(tx, [session_id])).get(session_id, Decimal(0))


async def accrued_of_session(tx: AsyncSession, session_id: str) -> Decimal:
    """Return dollars booked as used by a session."""
    total = await tx.scalar(select(TOTAL).where(LedgerEntry.session_id == session_id, LedgerEntry.kind.in_(USED)))
    return total or Decimal(0)


def unsettled_sum(conditions: Sequence[ColumnElement[bool]], since: datetime | None = None) -> ColumnElement[Decimal]:
    """Build the sum of the unsettled dollars of some sessions, for another query; the conditions are on the sessions.

    With `since`, of what may have been used since then: it counts in every period that a part of its time lies in.
    """
    total = func.coalesce(func.sum(Instance.unsettled_usd), literal(Decimal(0), MicroUsd()))
    query = select(type_coerce(total, MicroUsd)).join(Session, Session.id == Instance.session_id)
    within = [] if since is None else [Instance.latest_end_at > since]
    return query.where(Instance.unsettled_usd.is_not(None), *within, *conditions).scalar_subquery()


async def unsettled_of_earlier(tx: AsyncSession, newest: Mapping[str, str]) -> dict[str, Decimal]:
    """Return by session what is unsettled of its earlier instances; `newest` is the newest instance → its session."""
    query = select(Instance.session_id, type_coerce(func.sum(Instance.unsettled_usd), MicroUsd)).where(
        Instance.session_id.in_(newest.values()), Instance.id.not_in(newest), Instance.unsettled_usd.is_not(None)
    )
    rows: Any = await tx.execute(query.group_by(Instance.session_id))
    return dict(rows.all())


async def spent_before(tx: AsyncSession, request: Request) -> Decimal:
    """Return dollars of earlier attempts of a request that is quoted (again): booked, and what no bill has settled."""
    session = await session_of(tx, request.id) if request.quote_version > 0 else None
    if session is None:
        return Decimal(0)
    mine = (LedgerEntry.session_id == session.id, LedgerEntry.kind.in_(USED))
    amounts: Any = select(TOTAL, unsettled_sum([Session.id == session.id])).where(*mine)
    return sum(filter(None, (await tx.execute(amounts)).one()), Decimal(0))
