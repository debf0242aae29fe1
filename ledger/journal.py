"""The journal as a stream, and the ledger in figures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.doors import Whose, about
from ledger.models import Event, Instance, LedgerEntry, Request, Session
from ledger.states import LIVE_SESSION, InstanceState, RequestState


async def event_ids(tx: AsyncSession, since: str, whose: Whose | None, limit: int) -> list[str]:
    """The ids of events after `since`, in order; only those about one person's things when `whose` is given."""
    query = select(Event.id).where(Event.id > since).order_by(Event.id).limit(limit)
    if whose is not None:
        query = query.where(about(whose))
    return list(await tx.scalars(query))


async def events_by_id(tx: AsyncSession, ids: Collection[str]) -> list[Event]:
    """These events, in order."""
    return list(await tx.scalars(select(Event).where(Event.id.in_(list(ids))).order_by(Event.id)))


async def event_at(tx: AsyncSession, event_id: str) -> datetime | None:
    """When an event was; None when there is none with this id."""
    return await tx.scalar(select(Event.at).where(Event.id == event_id))


async def subjects_with(tx: AsyncSession, kind: str, subjects: Collection[str]) -> set[str]:
    """Those of the subjects that have an event of this kind."""
    query = select(Event.subject).where(Event.subject.in_(list(subjects)), Event.kind == kind)
    return set(await tx.scalars(query))


@dataclass(frozen=True, slots=True)
class Figures:
    """How many requests, sessions and instances there are in each state, what runs costs an hour, what was booked."""

    requests: dict[str, int]
    sessions: dict[str, int]
    instances: dict[tuple[str, str], int]
    usd_per_hour: dict[str, Decimal]
    booked_usd: Decimal


async def figures(tx: AsyncSession) -> Figures:
    """The figures of everything that is not over; what was booked, of all time."""
    requests = await _counted(tx, Request.state, Request.state.in_([RequestState.QUOTING, RequestState.PENDING]))
    sessions = await _counted(tx, Session.state, Session.state.in_(LIVE_SESSION))
    over = (InstanceState.GONE, InstanceState.REJECTED, InstanceState.TOMBSTONE)
    rows = await tx.execute(
        select(Instance.cloud, Instance.state, func.count(), func.sum(Instance.price_usd_h))
        .where(Instance.state.not_in(over))
        .group_by(Instance.cloud, Instance.state)
    )
    found = [(cloud, str(state), number, price) for cloud, state, number, price in rows]
    live = {cloud: price or Decimal(0) for cloud, state, _, price in found if state == InstanceState.LIVE}
    booked = await tx.scalar(select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.kind == "accrue"))
    counts = {(cloud, state): number for cloud, state, number, _ in found}
    return Figures(requests, sessions, counts, live, booked or Decimal(0))


async def _counted(tx: AsyncSession, state: Any, where: ColumnElement[bool]) -> dict[str, int]:
    rows = await tx.execute(select(state, func.count()).where(where).group_by(state))
    return {str(name): number for name, number in rows}


async def told_of(tx: AsyncSession, subject: str, kinds: Collection[str]) -> list[str]:
    """The sentences of some kinds of events about one subject, in order."""
    query = select(Event.reason).where(Event.subject == subject, Event.kind.in_(list(kinds)))
    return list(await tx.scalars(query.order_by(Event.at, Event.id)))
