"""Number committed events, and read them by position: one order for streams, webhooks and the hash chain."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    true,
    type_coerce,
)
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_journal
from ledger.kernel.columns import UtcDateTime
from ledger.models import Event, EventOrder, UnnumberedEvent
from ledger.queries.access import Whose, about

#: Most events that one statement numbers, so that other writers wait for a moment only.
BATCH = 1_000
_NEWEST = select(func.coalesce(func.max(EventOrder.position), 0))
_ONE = select(literal(1)).subquery()
_NOTED = (
    select(UnnumberedEvent.event_id)
    .order_by(UnnumberedEvent.event_id)
    .limit(bindparam("most", type_=Integer))
    .subquery()
)
#: The newest position beside each event that waits for its own; one row with no event where none waits.
_NEWEST_AND_NOTED = select(_NEWEST.scalar_subquery().label("newest"), _NOTED.c.event_id).select_from(
    _ONE.outerjoin(_NOTED, true())
)


class OrderState(NamedTuple):
    """Say up to which position events are numbered, and whether others wait for their numbers."""

    newest: int
    waiting: bool


async def order_state(tx: AsyncSession) -> OrderState:
    """Return how far the journal is numbered."""
    newest, waiting = (await tx.execute(select(_NEWEST.scalar_subquery(), exists(select(UnnumberedEvent))))).one()
    return OrderState(newest, bool(waiting))


async def newest_position(tx: AsyncSession) -> int:
    """Return the position of the event that was numbered last; 0 while there is none."""
    return int((await tx.execute(_NEWEST)).scalar_one())


async def number_events(tx: AsyncSession, now: datetime) -> OrderState:
    """Number committed events that have no position yet, at most `BATCH`, in the order of their times.

    Returns how far the journal is numbered now. No other process numbers events until the transaction ends. So an event
    has its position before those that become visible later, and a reader by position misses none.
    """
    await lock_journal(tx)
    # The ids are named in full, so that neither database has an occasion to read the whole journal.
    found = (await tx.execute(_NEWEST_AND_NOTED, {"most": BATCH})).all()
    newest, ids = int(found[0].newest), [row.event_id for row in found if row.event_id is not None]
    if not ids:
        return OrderState(newest, waiting=False)
    position = literal(newest) + func.row_number().over(order_by=(Event.at, Event.id))
    numbered = select(position, Event.id, type_coerce(literal(now, UtcDateTime), UtcDateTime)).where(Event.id.in_(ids))
    await tx.execute(insert(EventOrder).from_select(["position", "event_id", "numbered_at"], numbered))
    done = delete(UnnumberedEvent).where(UnnumberedEvent.event_id.in_(ids))
    await tx.execute(done.execution_options(synchronize_session=False))
    return OrderState(newest + len(ids), waiting=len(ids) == BATCH)


async def position_of(tx: AsyncSession, event_id: str) -> int | None:
    """Return the position of an event; None when there is none with this id."""
    return await tx.scalar(select(EventOrder.position).where(EventOrder.event_id == event_id))


async def events_after(
    tx: AsyncSession, after: int, scanned: int, *conditions: ColumnElement[bool]
) -> tuple[int, list[Event]]:
    """Read the next `scanned` positions; return the last of them, and their events that meet the conditions, in order.

    In two statements, so that a read costs as much as is new, whatever the conditions and however long the journal.
    """
    window = select(EventOrder.event_id, EventOrder.position).where(EventOrder.position > after)
    positions = {
        row.event_id: row.position for row in await tx.execute(window.order_by(EventOrder.position).limit(scanned))
    }
    if not positions:
        return after, []
    events = await tx.scalars(select(Event).where(Event.id.in_(list(positions)), *conditions))
    return max(positions.values()), sorted(events, key=lambda event: positions[event.id])


def only(whose: Whose | None, kinds: Collection[str] | None = None) -> list[ColumnElement[bool]]:
    """Build the conditions for events about one person's things (None: everybody's) and of some kinds (None: any)."""
    conditions = [] if whose is None else [about(whose)]
    return conditions if kinds is None else [*conditions, Event.kind.in_(sorted(kinds))]
