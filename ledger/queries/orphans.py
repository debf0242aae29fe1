"""Read and store orphans: instances of ours at a cloud that have no open row of their own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.states import OrphanState
from ledger.models import Orphan

_UNKNOWN = (Orphan.state == OrphanState.QUARANTINED, Orphan.instance_id.is_(None))


async def open_orphans(tx: AsyncSession, cloud: str) -> list[Orphan]:
    """Return orphans of every account at one cloud that are not yet gone."""
    return list(await tx.scalars(select(Orphan).where(Orphan.cloud == cloud, Orphan.state != OrphanState.GONE)))


async def waiting_orphans(tx: AsyncSession) -> list[Orphan]:
    """Return quarantined orphans that no instance row explains: the ledger has lost something."""
    return list(await tx.scalars(select(Orphan).where(*_UNKNOWN)))


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


async def unknown_instances(tx: AsyncSession) -> int:
    """Count instances of ours that have no row here and wait for an operator's decision."""
    return await tx.scalar(select(func.count()).select_from(Orphan).where(*_UNKNOWN)) or 0


async def add_orphan(tx: AsyncSession, **values: Any) -> bool:
    """Store an orphan with these columns. False when another replica has found the same instance meanwhile."""
    there = ["cloud", "account", "ref"]
    insert = insert_for(tx, Orphan).values(**values).on_conflict_do_nothing(index_elements=there)
    return (await tx.execute(insert.returning(Orphan.id))).first() is not None
