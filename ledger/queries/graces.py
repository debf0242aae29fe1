"""Read and write graces: the machines that stopped working and are kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.states import OPEN_INSTANCE
from ledger.models import Grace, Instance, Session

_COLUMNS = tuple(Grace.__table__.columns.keys())
_OPEN = Grace.ended_at.is_(None)
#: Whether an instance is kept beside its replacement: it only keeps its disk, and stands for its session no more.
IS_REPLACED: ColumnElement[bool] = (
    select(Grace.id).where(_OPEN, Grace.instance_id == Instance.id, Grace.replaced.is_(True)).exists()
)


async def open_graces(tx: AsyncSession) -> list[tuple[Grace, Instance, Session]]:
    """Return every open grace with its machine and its session, the oldest first."""
    query = (
        select(Grace, Instance, Session)
        .join(Instance, Instance.id == Grace.instance_id)
        .join(Session, Session.id == Grace.session_id)
        .where(_OPEN)
        .order_by(Grace.id)
    )
    rows: Any = await tx.execute(query)
    return [(grace, row, session) for grace, row, session in rows]


async def open_grace(tx: AsyncSession, instance_id: str) -> Grace | None:
    """Return the open grace of one machine."""
    query = select(Grace).where(_OPEN, Grace.instance_id == instance_id)
    return await tx.scalar(query.execution_options(populate_existing=True))


async def newest_grace(tx: AsyncSession, instance_id: str) -> Grace | None:
    """Return the last grace of one machine, open or not."""
    return await tx.scalar(select(Grace).where(Grace.instance_id == instance_id).order_by(Grace.id.desc()).limit(1))


async def graces_of_sessions(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, Grace]:
    """Return the open grace of each of these sessions that has one."""
    rows = await tx.scalars(select(Grace).where(_OPEN, Grace.session_id.in_(list(session_ids))).order_by(Grace.id))
    return {grace.session_id: grace for grace in rows}


async def replaced_of_session(tx: AsyncSession, session_id: str) -> tuple[Grace, Instance] | None:
    """Return the machine of a session that is kept beside its replacement, with its grace."""
    query = (
        select(Grace, Instance)
        .join(Instance, Instance.id == Grace.instance_id)
        .where(_OPEN, Grace.session_id == session_id, Grace.replaced.is_(True), Instance.state.in_(OPEN_INSTANCE))
    )
    found: Any = (await tx.execute(query)).first()
    return (found[0], found[1]) if found is not None else None


async def add_grace(tx: AsyncSession, grace: Grace) -> bool:
    """Store a grace. False when its machine has an open one."""
    values = {name: getattr(grace, name) for name in _COLUMNS if getattr(grace, name) is not None}
    insert = insert_for(tx, Grace).values(**values).on_conflict_do_nothing()
    return (await tx.execute(insert.returning(Grace.id))).first() is not None


async def change_grace(tx: AsyncSession, grace_id: str, **values: Any) -> bool:
    """Set columns of an open grace. False when it has ended."""
    query = update(Grace).where(Grace.id == grace_id, _OPEN).values(**values).returning(Grace.id)
    return (await tx.execute(query)).first() is not None
