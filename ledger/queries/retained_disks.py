"""Read and write retained disks, which are kept while their instance is stopped."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import InstanceState
from ledger.models import Disk, Instance, Session


async def stopped_instances(tx: AsyncSession) -> list[tuple[Instance, Session]]:
    """List instances that are stopped, by somebody's order or by a checkpoint hold, with their sessions."""
    held = and_(
        Instance.state == InstanceState.TERMINATING,
        Instance.checkpoint_step == CheckpointStep.HELD,
        Instance.status == "stopped",
    )
    rows: Any = await tx.execute(
        select(Instance, Session)
        .join(Session, Session.id == Instance.session_id)
        .where(or_(Instance.state == InstanceState.STOPPED, held))
        .order_by(Instance.id)
    )
    return [(row, session) for row, session in rows]


async def open_disks(tx: AsyncSession, session_ids: Collection[str] | None = None) -> list[Disk]:
    """List the disks that are kept now: all, or those of some sessions; the first to be deleted first."""
    query = select(Disk).where(Disk.ended_at.is_(None)).order_by(Disk.until, Disk.id)
    if session_ids is not None:
        query = query.where(Disk.session_id.in_(list(session_ids)))
    return list(await tx.scalars(query))


async def add_disk(tx: AsyncSession, **values: Any) -> bool:
    """Store a disk. False when another replica has stored the same one meanwhile."""
    insert = insert_for(tx, Disk).values(**values).on_conflict_do_nothing()
    return (await tx.execute(insert.returning(Disk.id))).first() is not None


async def change_disk(tx: AsyncSession, disk_id: str, **values: Any) -> bool:
    """Set columns of a retained disk. False when it is not kept any more."""
    mine = (Disk.id == disk_id, Disk.ended_at.is_(None))
    return (await tx.execute(update(Disk).where(*mine).values(**values).returning(Disk.id))).first() is not None
