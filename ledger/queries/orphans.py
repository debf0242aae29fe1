"""Strays: instances of ours at a cloud that have no open row of their own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.states import StrayState
from ledger.models import Stray

_UNKNOWN = (Stray.state == StrayState.QUARANTINED, Stray.instance_id.is_(None))


async def open_strays(tx: AsyncSession, cloud: str) -> list[Stray]:
    """Strays of every account at one cloud that are not yet gone."""
    return list(await tx.scalars(select(Stray).where(Stray.cloud == cloud, Stray.state != StrayState.GONE)))


async def waiting_strays(tx: AsyncSession) -> list[Stray]:
    """Strays of any account that have no row and wait for an operator: the ledger has lost something."""
    return list(await tx.scalars(select(Stray).where(*_UNKNOWN)))


async def quarantined(tx: AsyncSession) -> list[Stray]:
    """Strays of any account that wait for an operator, oldest first."""
    waits = select(Stray).where(Stray.state == StrayState.QUARANTINED)
    return list(await tx.scalars(waits.order_by(Stray.first_seen_at, Stray.id)))


async def every_stray(tx: AsyncSession) -> list[Stray]:
    """All strays, those that wait for an operator first, then the newest."""
    waits = case((Stray.state == StrayState.QUARANTINED, 0), else_=1)
    return list(await tx.scalars(select(Stray).order_by(waits, Stray.first_seen_at.desc(), Stray.id)))


async def stray_by_id(tx: AsyncSession, stray_id: str) -> Stray | None:
    """One stray."""
    return await tx.get(Stray, stray_id)


async def unknown_instances(tx: AsyncSession) -> int:
    """How many instances of ours have no row here and wait for an operator's word."""
    return await tx.scalar(select(func.count()).select_from(Stray).where(*_UNKNOWN)) or 0


async def add_stray(tx: AsyncSession, **values: Any) -> bool:
    """Store a stray with these columns. False when another replica has sighted the same instance meanwhile."""
    there = ["cloud", "account", "ref"]
    insert = insert_for(tx, Stray).values(**values).on_conflict_do_nothing(index_elements=there)
    return (await tx.execute(insert.returning(Stray.id))).first() is not None
