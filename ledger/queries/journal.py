"""Read the journal by its subjects, and what a repeated call has noted in it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.event_kind import EventKind
from ledger.models import Event, Instance


async def subjects_with(tx: AsyncSession, kind: EventKind, subjects: Collection[str]) -> set[str]:
    """Return those of the subjects that have an event of this kind."""
    query = select(Event.subject).where(Event.subject.in_(list(subjects)), Event.kind == kind)
    return set(await tx.scalars(query))


async def reasons_of(tx: AsyncSession, subject: str, kinds: Collection[EventKind]) -> list[str]:
    """Return the sentences of some kinds of events about one subject, in order."""
    query = select(Event.reason).where(Event.subject == subject, Event.kind.in_(list(kinds)))
    return list(await tx.scalars(query.order_by(Event.at, Event.id)))


async def latest_events(tx: AsyncSession, subject: str, kind: EventKind, limit: int) -> list[Event]:
    """Return the newest events of one kind about one subject, newest first."""
    query = select(Event).where(Event.subject == subject, Event.kind == kind)
    return list(await tx.scalars(query.order_by(Event.at.desc(), Event.id.desc()).limit(limit)))


async def moves_of(tx: AsyncSession, subjects: Collection[str]) -> list[Event]:
    """Return the moves of a session and its instances, in order: when each was reached first, stopped and started."""
    kinds = (EventKind.SESSION_MOVED, EventKind.INSTANCE_MOVED)
    query = select(Event).where(Event.subject.in_(list(subjects)), Event.kind.in_(kinds))
    return list(await tx.scalars(query.order_by(Event.at, Event.id)))


async def done_before(
    tx: AsyncSession, subject: str, kinds: Collection[EventKind], key: str, since: datetime
) -> Event | None:
    """Return the journal row of what the call `key` did to a subject, or ordered for a session's instances."""
    if not key:
        return None
    mine = [subject, *await tx.scalars(select(Instance.id).where(Instance.session_id == subject))]
    return await noted_before(tx, mine, key, since, kinds)


async def noted_before(
    tx: AsyncSession,
    subjects: Collection[str] | Select[Any],
    key: str,
    since: datetime,
    kinds: Collection[EventKind] = (),
) -> Event | None:
    """Return the journal row, of these kinds or any, in which the call `key` noted what it did to a subject."""
    if not key:
        return None
    noted = select(Event).where(Event.subject.in_(subjects), Event.at > since)
    rows = await tx.scalars(noted.where(Event.kind.in_(list(kinds))) if kinds else noted)
    return next((one for one in rows if one.data.get("key") == key), None)


async def quote_failures(tx: AsyncSession, request_id: str, kind: EventKind) -> int:
    """Count the journal rows of `kind` that a request has since its last event of another kind."""
    since = select(func.max(Event.at)).where(Event.subject == request_id, Event.kind != kind).scalar_subquery()
    query = select(func.count()).where(Event.subject == request_id, Event.kind == kind, Event.at >= since)
    return await tx.scalar(query) or 0
