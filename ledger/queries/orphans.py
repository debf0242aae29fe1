"""Read and store orphans: instances of ours at a cloud that have no open row of their own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import case, exists, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.states import OrphanState
from ledger.models import Event, Orphan
from ledger.models.sessions import OPEN_ORPHAN


async def open_orphans(tx: AsyncSession, cloud: str) -> list[Orphan]:
    """Return orphans of every account at one cloud that are not yet gone."""
    return list(await tx.scalars(select(Orphan).where(Orphan.cloud == cloud, Orphan.state != OrphanState.GONE)))


async def quarantined(tx: AsyncSession) -> list[Orphan]:
    """Return orphans of any account that wait for an operator, oldest first."""
    waits = select(Orphan).where(Orphan.state == OrphanState.QUARANTINED)
    return list(await tx.scalars(waits.order_by(Orphan.first_seen_at, Orphan.id)))


async def every_orphan(tx: AsyncSession) -> list[Orphan]:
    """Return all orphans, those that wait for an operator first, then the newest."""
    waits = case((Orphan.state == OrphanState.QUARANTINED, 0), else_=1)
    return list(await tx.scalars(select(Orphan).order_by(waits, Orphan.first_seen_at.desc(), Orphan.id)))


async def orphan_by_id(tx: AsyncSession, orphan_id: str) -> Orphan | None:
    """Return one orphan."""
    return await tx.get(Orphan, orphan_id)


async def add_orphan(tx: AsyncSession, **values: Any) -> bool:
    """Store an orphan with these columns. False when another replica has found the same instance meanwhile."""
    there = ["cloud", "account", "ref"]
    insert = insert_for(tx, Orphan).values(**values)
    insert = insert.on_conflict_do_nothing(index_elements=there, index_where=text(OPEN_ORPHAN))
    return (await tx.execute(insert.returning(Orphan.id))).first() is not None


@dataclass(frozen=True, slots=True)
class CountedGone:
    """Say until when an instance is booked that counted as gone, and whether its termination had been ordered."""

    until: datetime
    condemned: bool


async def counted_gone(tx: AsyncSession, cloud: str, labels: Collection[str]) -> dict[tuple[str, str], CountedGone]:
    """Return what earlier orphans with these labels became, by the cloud's id and the label, under whatever key."""
    if not labels:
        return {}
    ordered = exists().where(Event.subject == Orphan.id, Event.after == str(OrphanState.CONDEMNED))
    query = select(Orphan.ref, Orphan.label, Orphan.ended_at, Orphan.last_seen_at, ordered.label("ordered"))
    gone = (Orphan.cloud == cloud, Orphan.state == OrphanState.GONE, Orphan.label.in_(list(labels)))
    found: dict[tuple[str, str], CountedGone] = {}
    for ref, label, ended_at, last_seen_at, condemned in await tx.execute(query.where(*gone)):
        until = ended_at or last_seen_at
        one = found.get((ref, label), CountedGone(until, condemned))
        found[ref, label] = CountedGone(max(one.until, until), one.condemned or condemned)
    return found
