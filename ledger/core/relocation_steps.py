"""Move a migration to its next step: one guarded UPDATE and its journal row, as `moves` does with states."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.events import record
from ledger.core.moves import IllegalMove, StaleMove
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.steps.relocation_step import FOLLOWS, OVER, MigrationStep
from ledger.models import Migration


async def take_step(
    tx: AsyncSession,
    row: Migration,
    to: MigrationStep,
    at: datetime,
    actor: Actor,
    reason: str,
    **values: Any,
) -> Migration:
    """Move a migration on from the step and version that `row` was read with, and return it as it is now.

    Raises `StaleMove` when somebody else moved it first, and `IllegalMove` for a step that does not follow.
    """
    if to not in FOLLOWS[row.step]:
        raise IllegalMove(row.id, row.step, to)
    ended = {"due_at": None, "ended_at": at} if to in OVER else {"due_at": at}
    changed = {"step": to, "version": Migration.version + 1, "step_at": at, "note": reason, "clock_from": None}
    changed |= ended | values
    query = update(Migration).where(Migration.id == row.id, Migration.version == row.version).values(changed)
    query = query.returning(Migration).execution_options(populate_existing=True)
    moved = (await tx.execute(query)).scalar_one_or_none()
    if moved is None:
        raise StaleMove(row.id, row.step, to)
    data = {"request_id": moved.request_id, "session_id": moved.source_session_id}
    before = str(row.step)
    record(tx, at, actor, moved.id, EventKind.MIGRATION_STEP, before=before, after=str(to), reason=reason, data=data)
    return moved


async def take_look(tx: AsyncSession, migration_id: str, now: datetime, until: datetime) -> bool:
    """Claim the look at one migration until then; False when another process has it, or nothing is due."""
    due = (Migration.id == migration_id, Migration.due_at.is_not(None), Migration.due_at <= now)
    taken = await tx.execute(update(Migration).where(*due).values(due_at=until).returning(Migration.id))
    return taken.first() is not None


async def note_look(
    tx: AsyncSession, row: Migration, note: str, due_at: datetime, clock_from: datetime | None = None
) -> bool:
    """Store what a look found missing, and when to look again. True when people read something new.

    With `clock_from` the longest time of the step counts from then on.
    """
    mine = (Migration.id == row.id, Migration.version == row.version)
    values = {"note": note, "due_at": due_at, "clock_from": clock_from or row.clock_from}
    await tx.execute(update(Migration).where(*mine).values(values))
    return note != row.note


async def forget_inferred_step(tx: AsyncSession, row: Migration) -> None:
    """Forget the step of a save that nothing names: no machine is judged by it any more."""
    mine = (Migration.id == row.id, Migration.version == row.version, Migration.is_step_inferred.is_(True))
    await tx.execute(update(Migration).where(*mine).values(saved_step=None, is_step_inferred=False))
