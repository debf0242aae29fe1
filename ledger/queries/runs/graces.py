"""Read and write graces: the machines that stopped working and are kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.engine.db import insert_for
from ledger.kernel.states import OPEN_INSTANCE
from ledger.models import GraceRow, Instance, Session

_COLUMNS = tuple(GraceRow.__table__.columns.keys())
_OPEN = GraceRow.ended_at.is_(None)
#: Whether an instance is kept beside its replacement: it only keeps its disk, and stands for its session no more.
IS_REPLACED: ColumnElement[bool] = (
    select(GraceRow.id).where(_OPEN, GraceRow.instance_id == Instance.id, GraceRow.replaced.is_(True)).exists()
)
_EARLIER = aliased(Instance)
#: Whether an instance was launched beside an earlier one of its session that was kept.
IS_BESIDE: ColumnElement[bool] = (
    select(GraceRow.id)
    .join(_EARLIER, _EARLIER.id == GraceRow.instance_id)
    .where(GraceRow.session_id == Instance.session_id, GraceRow.replaced.is_(True), _EARLIER.n < Instance.n)
    .correlate(Instance)
    .exists()
)


async def open_graces(tx: AsyncSession) -> list[tuple[GraceRow, Instance, Session]]:
    """Return every open grace with its machine and its session, the oldest first."""
    query = (
        select(GraceRow, Instance, Session)
        .join(Instance, Instance.id == GraceRow.instance_id)
        .join(Session, Session.id == GraceRow.session_id)
        .where(_OPEN)
        .order_by(GraceRow.id)
    )
    rows: Any = await tx.execute(query)
    return [(grace, row, session) for grace, row, session in rows]


async def open_grace(tx: AsyncSession, instance_id: str) -> GraceRow | None:
    """Return the open grace of one machine."""
    query = select(GraceRow).where(_OPEN, GraceRow.instance_id == instance_id)
    return await tx.scalar(query.execution_options(populate_existing=True))


async def newest_grace(tx: AsyncSession, instance_id: str) -> GraceRow | None:
    """Return the last grace of one machine, open or not."""
    return await tx.scalar(
        select(GraceRow).where(GraceRow.instance_id == instance_id).order_by(GraceRow.id.desc()).limit(1)
    )


async def graces_of_sessions(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, GraceRow]:
    """Return the open grace of each of these sessions that has one."""
    rows = await tx.scalars(
        select(GraceRow).where(_OPEN, GraceRow.session_id.in_(list(session_ids))).order_by(GraceRow.id)
    )
    return {grace.session_id: grace for grace in rows}


async def replaced_of_session(tx: AsyncSession, session_id: str) -> tuple[GraceRow, Instance] | None:
    """Return the machine of a session that is kept beside its replacement, with its grace."""
    query = (
        select(GraceRow, Instance)
        .join(Instance, Instance.id == GraceRow.instance_id)
        .where(_OPEN, GraceRow.session_id == session_id, GraceRow.replaced.is_(True), Instance.state.in_(OPEN_INSTANCE))
    )
    found: Any = (await tx.execute(query)).first()
    return (found[0], found[1]) if found is not None else None


async def add_grace(tx: AsyncSession, grace: GraceRow) -> bool:
    """Store a grace. False when its machine has an open one."""
    values = {name: getattr(grace, name) for name in _COLUMNS if getattr(grace, name) is not None}
    insert = insert_for(tx, GraceRow).values(**values).on_conflict_do_nothing()
    return (await tx.execute(insert.returning(GraceRow.id))).first() is not None


async def change_grace(tx: AsyncSession, grace_id: str, **values: Any) -> bool:
    """Set columns of an open grace. False when it has ended."""
    query = update(GraceRow).where(GraceRow.id == grace_id, _OPEN).values(**values).returning(GraceRow.id)
    return (await tx.execute(query)).first() is not None
