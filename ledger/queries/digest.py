"""Read what a digest reports beside money: running and ended sessions, stops, and orphans that were found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import LIVE_SESSION, OPEN_INSTANCE, SessionState
from ledger.models import Event, Instance, Mark, Orphan, Session

#: Names in one `IN`: SQLite takes no more than some tens of thousands.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class SessionAndInstance:
    """Describe a session with its open instance, if it has one."""

    id: str
    owner: str
    gpu: str
    gpu_count: int
    state: SessionState
    deadline: datetime | None
    cloud: str
    price_usd_h: Decimal
    storage_usd_h: Decimal
    request_id: str


@dataclass(frozen=True, slots=True)
class Over:
    """Describe a session that ended, and why. `price_usd_h` is that of its most expensive instance."""

    id: str
    code: str
    deadline: datetime | None
    ended_at: datetime
    price_usd_h: Decimal


async def any_before(tx: AsyncSession, at: datetime) -> bool:
    """Whether there was anything to report before then."""
    return await tx.scalar(select(Session.id).where(Session.created_at < at).limit(1)) is not None


async def mark_of(tx: AsyncSession, name: str) -> str:
    """Return the value of a mark; "" where it was never set."""
    found = await tx.get(Mark, name, populate_existing=True)
    return "" if found is None else found.value


async def set_mark(tx: AsyncSession, name: str, value: str, now: datetime) -> None:
    """Set a mark."""
    found = await tx.get(Mark, name, populate_existing=True)
    if found is None:
        tx.add(Mark(name=name, value=value, at=now))
    else:
        found.value, found.at = value, now


async def open_sessions(tx: AsyncSession) -> list[SessionAndInstance]:
    """List every session that has not ended, the first to end first."""
    mine = and_(Instance.session_id == Session.id, Instance.state.in_(OPEN_INSTANCE))
    rows: Any = await tx.execute(
        select(
            Session.id,
            Session.owner,
            Session.gpu,
            Session.gpu_count,
            Session.state,
            Session.deadline,
            func.coalesce(Instance.cloud, ""),
            Instance.price_usd_h,
            Instance.storage_usd_h,
            Session.request_id,
        )
        .outerjoin(Instance, mine)
        .where(Session.state.in_(LIVE_SESSION))
        .order_by(Session.deadline.is_(None), Session.deadline, Session.id)
    )
    return [
        SessionAndInstance(
            one, who, gpu, count, state, deadline, cloud, price or Decimal(0), storage or Decimal(0), request_id
        )
        for one, who, gpu, count, state, deadline, cloud, price, storage, request_id in rows
    ]


async def over(tx: AsyncSession, since: datetime, until: datetime) -> list[Over]:
    """List every session that ended in [since, until)."""
    price = select(func.max(Instance.price_usd_h)).where(Instance.session_id == Session.id).scalar_subquery()
    rows: Any = await tx.execute(
        select(Session.id, Session.end_code, Session.deadline, Session.ended_at, price)
        .where(Session.ended_at >= since, Session.ended_at < until)
        .order_by(Session.id)
    )
    return [Over(one, code, end, at, price_usd_h or Decimal(0)) for one, code, end, at, price_usd_h in rows]


async def stops(
    tx: AsyncSession, session_ids: Sequence[str], until: datetime
) -> dict[str, list[tuple[datetime, bool]]]:
    """Return when each of these sessions was stopped (True) and started or ended (False) before then, in order."""
    found: dict[str, list[tuple[datetime, bool]]] = {}
    for start in range(0, len(session_ids), _CHUNK):
        rows = await tx.execute(
            select(Event.subject, Event.at, Event.before, Event.after)
            .where(Event.subject.in_(session_ids[start : start + _CHUNK]), Event.kind == EventKind.SESSION_MOVED)
            .where(Event.at < until)
            .order_by(Event.at, Event.id)
        )
        for subject, at, before, after in rows:
            if SessionState.STOPPED in (before, after):
                found.setdefault(subject, []).append((at, after == SessionState.STOPPED))
    return found


async def orphans_found(tx: AsyncSession, since: datetime, until: datetime) -> list[Orphan]:
    """List orphans that were first seen in [since, until)."""
    within = (Orphan.first_seen_at >= since, Orphan.first_seen_at < until)
    return list(await tx.scalars(select(Orphan).where(*within).order_by(Orphan.first_seen_at)))


async def said_of(tx: AsyncSession, kind: EventKind, since: datetime, until: datetime) -> list[str]:
    """Return the sentences of one kind of event in [since, until), in order."""
    within = (Event.kind == kind, Event.at >= since, Event.at < until)
    return list(await tx.scalars(select(Event.reason).where(*within).order_by(Event.at, Event.id)))


async def gone_at(tx: AsyncSession, clouds: Collection[str], since: datetime, until: datetime) -> list[Instance]:
    """List instances at these clouds that ended in [since, until), those with the highest price first."""
    within = (Instance.ended_at >= since, Instance.ended_at < until)
    query = select(Instance).where(Instance.cloud.in_(list(clouds)), *within).order_by(Instance.price_usd_h.desc())
    return list(await tx.scalars(query)) if clouds else []
