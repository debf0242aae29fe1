"""Number committed events, and read them by position: one order for streams, webhooks and the hash chain."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, exists, func, insert, literal, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_journal
from ledger.kernel.columns import UtcDateTime
from ledger.models import Event, EventOrder, UnnumberedEvent
from ledger.queries.access import Whose, about

#: Most events that one statement numbers, so that other writers wait for a moment only.
BATCH = 1_000
_NEWEST = select(func.coalesce(func.max(EventOrder.position), 0))


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
    newest = await newest_position(tx)
    waiting = (
        select(Event.id, Event.at)
        .join(UnnumberedEvent, UnnumberedEvent.event_id == Event.id)
        .order_by(Event.at, Event.id)
        .limit(BATCH)
        .subquery()
    )
    position = literal(newest) + func.row_number().over(order_by=(waiting.c.at, waiting.c.id))
    numbered = select(position, waiting.c.id, type_coerce(literal(now, UtcDateTime), UtcDateTime))
    await tx.execute(insert(EventOrder).from_select(["position", "event_id", "numbered_at"], numbered))
    done = select(EventOrder.event_id).where(EventOrder.position > newest)
    await tx.execute(
        delete(UnnumberedEvent).where(UnnumberedEvent.event_id.in_(done)).execution_options(synchronize_session=False)
    )
    reached = await newest_position(tx)
    return OrderState(reached, reached - newest == BATCH)


async def position_of(tx: AsyncSession, event_id: str) -> int | None:
    """Return the position of an event; None when there is none with this id."""
    return await tx.scalar(select(EventOrder.position).where(EventOrder.event_id == event_id))


async def events_between(
    tx: AsyncSession, after: int, until: int, limit: int, *conditions: ColumnElement[bool]
) -> list[tuple[int, Event]]:
    """Return the events at positions above `after` and up to `until` that meet the conditions, with their positions."""
    within = select(EventOrder.position, Event).join(Event, Event.id == EventOrder.event_id)
    within = within.where(EventOrder.position > after, EventOrder.position <= until, *conditions)
    rows = await tx.execute(within.order_by(EventOrder.position).limit(limit))
    return [(position, event) for position, event in rows.all()]


def only(whose: Whose | None, kinds: Collection[str] | None = None) -> list[ColumnElement[bool]]:
    """Build the conditions for events about one person's things (None: everybody's) and of some kinds (None: any)."""
    conditions = [] if whose is None else [about(whose)]
    return conditions if kinds is None else [*conditions, Event.kind.in_(sorted(kinds))]
