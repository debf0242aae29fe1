"""Read how far the journal goes, and which of its events are there: what shows the age of this ledger."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Event, EventOrder, UnnumberedEvent
from ledger.queries.recovery.older import older_at, orphan_since

_COUNTED = select(func.coalesce(func.max(EventOrder.position), 0)).scalar_subquery()
_WAITING = select(func.count()).select_from(UnnumberedEvent).scalar_subquery()
_LAST = select(EventOrder.event_id).order_by(EventOrder.position.desc()).limit(1).scalar_subquery()


class JournalAge(NamedTuple):
    """Say how many events the journal has, and hold the newest numbered one and those that were asked for.

    `older_since` is when it was noticed that the ledger is an older one; None once that is accepted. `orphan_since` is
    when the first unknown instance that waits was seen.
    """

    events: int
    newest: Event | None
    by_id: dict[str, Event]
    older_since: datetime | None
    orphan_since: datetime | None


async def newest_at(tx: AsyncSession) -> datetime | None:
    """Return the time of the newest event, numbered or not; None where there is none."""
    waiting = select(UnnumberedEvent.event_id)
    return await tx.scalar(select(func.max(Event.at)).where((Event.id == _LAST) | Event.id.in_(waiting)))


async def journal_age(tx: AsyncSession, ids: Collection[str]) -> JournalAge:
    """Return how far the journal goes and which of the events `ids` it has: one statement."""
    state = select(
        (_COUNTED + _WAITING).label("events"),
        _LAST.label("last"),
        older_at().label("older"),
        orphan_since().label("orphan"),
    ).subquery()
    wanted = Event.id.in_(list(ids)) | (Event.id == state.c.last)
    rows = (await tx.execute(select(state, Event).select_from(state.outerjoin(Event, wanted)))).all()
    by_id = {row.Event.id: row.Event for row in rows if row.Event is not None}
    return JournalAge(rows[0].events, by_id.get(rows[0].last), by_id, rows[0].older, rows[0].orphan)
