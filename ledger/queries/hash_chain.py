"""Read and extend the hash chain of the journal: one job writes the hashes, in the order of the positions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.models import Event, EventHash, EventOrder, GrantRow, Instance, Request, Session, UnnumberedEvent
from ledger.queries.event_order import events_after


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Hold an event with its position and its hash, as far as it has them by now.

    `waiting`: it has no position yet, because its commit was a moment ago.
    """

    event: Event
    link: EventHash | None
    position: int | None
    numbered_at: datetime | None
    waiting: bool


async def unhashed_events(tx: AsyncSession, limit: int) -> list[Event]:
    """List events without a hash that are numbered after every event with one, in order of their positions."""
    return (await events_after(tx, await last_hashed_position(tx), limit))[1]


async def last_hashed_position(tx: AsyncSession) -> int:
    """Return the greatest position of an event with a hash; 0 while no event has one."""
    hashed = select(EventOrder.position).join(EventHash, EventHash.event_id == EventOrder.event_id)
    # From the end of the order, where only the last minute has no hash.
    return await tx.scalar(hashed.order_by(EventOrder.position.desc()).limit(1)) or 0


async def heads(tx: AsyncSession, subjects: Collection[str]) -> dict[str, EventHash]:
    """Return the last hash of each subject that has one."""
    last = select(EventHash.subject, func.max(EventHash.number).label("number")).where(
        EventHash.subject.in_(list(subjects))
    )
    top = last.group_by(EventHash.subject).subquery()
    rows = select(EventHash).join(top, (EventHash.subject == top.c.subject) & (EventHash.number == top.c.number))
    return {link.subject: link for link in await tx.scalars(rows)}


async def journal_of(tx: AsyncSession, subjects: Collection[str]) -> list[JournalEntry]:
    """Return the events of some subjects in the order of the journal; the last ones may have no position yet."""
    query = (
        select(Event, EventHash, EventOrder.position, EventOrder.numbered_at, UnnumberedEvent.event_id.is_not(None))
        .outerjoin(EventHash, EventHash.event_id == Event.id)
        .outerjoin(EventOrder, EventOrder.event_id == Event.id)
        .outerjoin(UnnumberedEvent, UnnumberedEvent.event_id == Event.id)
        .where(Event.subject.in_(list(subjects)))
    )
    rows = await tx.execute(query.order_by(EventOrder.position.nulls_last(), Event.at, Event.id))
    return [JournalEntry(*row) for row in rows.all()]


async def family(tx: AsyncSession, request_id: str) -> list[str]:
    """List the subjects of a request's events: the request, its session, instances, grants and further requests."""
    mine = or_(Request.id == request_id, Request.parent_id == request_id)
    asked = list(await tx.scalars(select(Request.id).where(mine)))
    found = [*asked]
    for model in (Session, Instance, GrantRow):
        found += await tx.scalars(select(model.id).where(model.request_id.in_(asked)))
    return found
