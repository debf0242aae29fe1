"""Read and extend the hash chain of the journal: one job writes the hashes, in order."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_hash_chain
from ledger.kernel.ids import base32
from ledger.models import Event, EventHash, GrantRow, Instance, Request, Session

#: An event is written when it happens; one that commits later than this after it would get no hash.
MARGIN = timedelta(hours=1)


async def unsealed(tx: AsyncSession, until: datetime, limit: int) -> list[Event]:
    """List events before `until` without a hash, in order. No other process adds hashes until the transaction ends."""
    await lock_hash_chain(tx)
    newest = await last_hashed_at(tx)
    query = (
        select(Event)
        .outerjoin(EventHash, EventHash.event_id == Event.id)
        .where(EventHash.event_id.is_(None), Event.at < until)
    )
    if newest is not None:
        # Ids are ordered by time, so only the last hour is looked through, however long the journal is.
        milliseconds = int((newest - MARGIN).timestamp() * 1000)
        query = query.where(Event.id >= f"evt_{base32(milliseconds << 32, 16)}")
    return list(await tx.scalars(query.order_by(Event.at, Event.id).limit(limit)))


async def last_hashed_at(tx: AsyncSession) -> datetime | None:
    """Return when the latest event with a hash happened; None while no event has one."""
    return await tx.scalar(select(func.max(EventHash.at)))


async def heads(tx: AsyncSession, subjects: Collection[str]) -> dict[str, EventHash]:
    """Return the last hash of each subject that has one."""
    last = select(EventHash.subject, func.max(EventHash.number).label("number")).where(
        EventHash.subject.in_(list(subjects))
    )
    top = last.group_by(EventHash.subject).subquery()
    rows = select(EventHash).join(top, (EventHash.subject == top.c.subject) & (EventHash.number == top.c.number))
    return {link.subject: link for link in await tx.scalars(rows)}


async def hashed_events(tx: AsyncSession, subjects: Collection[str]) -> list[tuple[Event, EventHash | None]]:
    """Return the events of some subjects with their hashes, in the order of the journal."""
    query = (
        select(Event, EventHash)
        .outerjoin(EventHash, EventHash.event_id == Event.id)
        .where(Event.subject.in_(list(subjects)))
    )
    rows = await tx.execute(query.order_by(Event.at, Event.id))
    return [(event, link) for event, link in rows.all()]


async def family(tx: AsyncSession, request_id: str) -> list[str]:
    """List the subjects of a request's events: the request, its session, instances, grants and further requests."""
    mine = or_(Request.id == request_id, Request.parent_id == request_id)
    asked = list(await tx.scalars(select(Request.id).where(mine)))
    found = [*asked]
    for model in (Session, Instance, GrantRow):
        found += await tx.scalars(select(model.id).where(model.request_id.in_(asked)))
    return found
