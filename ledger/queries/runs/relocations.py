"""Read migrations: what is due, and what moves a session or has moved it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import first_id
from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import OVER, TAKES_OVER, TARGET_MAY_RUN, MigrationStep
from ledger.kernel.volume_name import VOLUME
from ledger.models import Event, Migration, Node, Session


async def due_migrations(tx: AsyncSession, now: datetime, limit: int) -> list[str]:
    """Return the ids of migrations to look at now, the longest due first."""
    query = select(Migration.id).where(Migration.due_at <= now).order_by(Migration.due_at, Migration.id).limit(limit)
    return list(await tx.scalars(query))


async def open_migration_of(tx: AsyncSession, session_id: str) -> Migration | None:
    """Return the open migration that moves a session away, or that it is the target of."""
    target = select(Session.request_id).where(Session.id == session_id).scalar_subquery()
    mine = or_(Migration.source_session_id == session_id, Migration.request_id == target)
    return await tx.scalar(select(Migration).where(mine, Migration.step.not_in(OVER)).limit(1))


async def sources_of_moves(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, str]:
    """Return the request of the run's machine of now for each of these requests for another one."""
    query: Any = select(Migration.request_id, Migration.source_request_id)
    return dict((await tx.execute(query.where(Migration.request_id.in_(request_ids)))).all())


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


async def taken_over_by(tx: AsyncSession, session_id: str) -> str | None:
    """Return the request of the target that took the run of a session over and may train; None where none did."""
    mine = (Migration.source_session_id == session_id, Migration.taken_over_at.is_not(None))
    query = select(Migration.request_id).where(*mine, Migration.step.in_(TARGET_MAY_RUN)).limit(1)
    return await tx.scalar(query)


async def waiting_target(tx: AsyncSession, session_id: str) -> Session | None:
    """Return the target that takes the run of a session over when the session ends alone; None where none can."""
    query = (
        select(Session)
        .join(Migration, Migration.request_id == Session.request_id)
        .where(
            Migration.source_session_id == session_id,
            Migration.step.in_([*TAKES_OVER, MigrationStep.ENDING]),
            Session.state.in_([SessionState.PROVISIONING, SessionState.RUNNING]),
        )
    )
    return await tx.scalar(query.limit(1))


class StoredTargetPlace(NamedTuple):
    """Name where the target of a move saves, how far that move is, and what the target's machines reported last."""

    place: str
    step: MigrationStep
    saved_step: int | None
    #: From when until when the target may have worked.
    started_at: datetime | None
    ended_at: datetime | None
    reports: list[dict[str, Any]]


async def target_places(tx: AsyncSession, below: str) -> list[StoredTargetPlace]:
    """Return the places below this one where targets of moves save."""
    is_below = Migration.target_place.startswith(f"{below.rstrip('/')}/", autoescape=True)
    query = (
        select(Migration, Node.report)
        .outerjoin(Session, Session.request_id == Migration.request_id)
        .outerjoin(Node, (Node.session_id == Session.id) & Node.at.is_not(None))
        .where(is_below)
        .order_by(Migration.id, Node.instance_id)
    )
    found: dict[str, StoredTargetPlace] = {}
    rows: Any = await tx.execute(query)
    for row, report in rows:
        times = (row.started_at, row.ended_at)
        place = StoredTargetPlace(row.target_place, row.step, row.saved_step, *times, [])
        found.setdefault(row.id, place).reports.extend([report] if report else [])
    return list(found.values())


async def migrations_of(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, Migration]:
    """Return the newest migration of each of these sessions, as its source or as its target."""
    target = select(Migration, Session.id).outerjoin(Session, Session.request_id == Migration.request_id)
    mine = or_(Migration.source_session_id.in_(session_ids), Session.id.in_(session_ids))
    found: dict[str, Migration] = {}
    for row, target_id in await tx.execute(target.where(mine).order_by(Migration.id)):
        found.update({one: row for one in (row.source_session_id, target_id) if one in session_ids})
    return found


async def sessions_to_move(
    tx: AsyncSession, ends_after: datetime, notified_since: datetime, limit: int
) -> list[Session]:
    """Return running sessions that might be moved, the last to end first.

    Left out are sets, network volumes, sessions that end before `ends_after`, are about to end early or are being
    moved, and those of owners who were notified of a cheaper place since `notified_since`.
    """
    known = (
        select(Session.owner)
        .join(Event, Event.subject == Session.id)
        .where(Event.id >= first_id("evt", notified_since), Event.kind == EventKind.MIGRATION_SUGGESTED)
    )
    going = select(Migration.source_session_id).where(Migration.step.not_in(OVER))
    coming = select(Migration.request_id).where(Migration.step.not_in(OVER))
    query = select(Session).where(
        Session.state == SessionState.RUNNING,
        Session.nodes == 1,
        Session.gpu.not_like(f"{VOLUME}%"),
        Session.deadline > ends_after,
        Session.job_state.is_(None),
        Session.early_end_at.is_(None),
        Session.id.not_in(going),
        Session.request_id.not_in(coming),
        Session.owner.not_in(known),
    )
    return list(await tx.scalars(query.order_by(Session.deadline.desc(), Session.id).limit(limit)))


async def notified_since(tx: AsyncSession, since: datetime) -> set[str]:
    """Return the destinations that were notified of a cheaper place since then, for whichever owner's run."""
    query = select(Event.data).where(Event.id >= first_id("evt", since), Event.kind == EventKind.MIGRATION_SUGGESTED)
    return {to for data in await tx.scalars(query) for to in data.get("to", ())}
