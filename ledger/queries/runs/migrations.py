"""Read migrations: what is due, and what moves a session or has moved it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.steps.migration_step import OVER, TAKES_OVER, MigrationStep
from ledger.models import Migration, Session


async def due_migrations(tx: AsyncSession, now: datetime, limit: int) -> list[str]:
    """Return the ids of migrations to look at now, the longest due first."""
    query = select(Migration.id).where(Migration.due_at <= now).order_by(Migration.due_at, Migration.id).limit(limit)
    return list(await tx.scalars(query))


async def open_migration_of(tx: AsyncSession, session_id: str) -> Migration | None:
    """Return the open migration that moves a session away, or that it is the target of."""
    target = select(Session.request_id).where(Session.id == session_id).scalar_subquery()
    mine = or_(Migration.source_session_id == session_id, Migration.request_id == target)
    return await tx.scalar(select(Migration).where(mine, Migration.step.not_in(OVER)).limit(1))


async def last_migration_of(tx: AsyncSession, session_id: str, request_id: str) -> Migration | None:
    """Return the newest migration that a session is the source or the target of."""
    mine = or_(Migration.source_session_id == session_id, Migration.request_id == request_id)
    return await tx.scalar(select(Migration).where(mine).order_by(Migration.id.desc()).limit(1))


async def is_moving(tx: AsyncSession, session_id: str) -> bool:
    """Whether the run of a session is being moved away, and its new machine was approved."""
    going = Migration.step.not_in([*OVER, MigrationStep.CHECKED])
    mine = select(Migration.id).where(Migration.source_session_id == session_id, going).limit(1)
    return await tx.scalar(mine) is not None


async def is_taken_over(tx: AsyncSession, session_id: str) -> bool:
    """Whether the machine of a session gets no replacement, because its run is being moved to another one.

    After a target that may have started was ordered to end, nothing starts either until its end is proved.
    """
    ends = (Migration.step == MigrationStep.ENDING) & Migration.started_at.is_not(None)
    mine = (Migration.source_session_id == session_id, or_(Migration.step.in_(TAKES_OVER), ends))
    return await tx.scalar(select(Migration.id).where(*mine).limit(1)) is not None


async def migrations_of(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, Migration]:
    """Return the newest migration of each of these sessions, as its source or as its target."""
    target = select(Migration, Session.id).outerjoin(Session, Session.request_id == Migration.request_id)
    mine = or_(Migration.source_session_id.in_(session_ids), Session.id.in_(session_ids))
    found: dict[str, Migration] = {}
    for row, target_id in await tx.execute(target.where(mine).order_by(Migration.id)):
        found.update({one: row for one in (row.source_session_id, target_id) if one in session_ids})
    return found
