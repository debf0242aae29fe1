"""Look up the machines of sets: sets that are not whole any more, and where the machines of one reach each other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.states import ENDABLE_SESSION, PART_OF_SET, InstanceState, SessionState
from ledger.models import Instance, Session
from ledger.queries.runs.machines import machines_of_session

#: The closed and ending machines of a set are its failures.
_COUNT: ColumnElement[int] = (
    select(func.count())
    .where(Instance.session_id == Session.id, Instance.state.in_(PART_OF_SET))
    .correlate(Session)
    .scalar_subquery()
)


async def broken_sets(tx: AsyncSession) -> list[str]:
    """Return the sessions of sets that lack a machine and are not ending yet.

    Machines that share a queue work alone: their session lacks one when it has none.
    """
    least = case((Session.dealt_commands > 0, 1), else_=Session.nodes)
    query = select(Session.id).where(Session.nodes > 1, Session.state.in_(ENDABLE_SESSION), least > _COUNT)
    return list(await tx.scalars(query.order_by(Session.id)))


async def is_whole(tx: AsyncSession, session: Session) -> bool:
    """Whether no machine of a session has failed that it can't work without.

    None of a set may fail, and not all of those that share a queue. A session of one machine is always whole.
    """
    mine = (Instance.session_id == session.id, Instance.state.in_(PART_OF_SET))
    least = 1 if session.dealt_commands else session.nodes
    return session.nodes == 1 or (await tx.scalar(select(func.count()).where(*mine)) or 0) >= least


async def is_ready(tx: AsyncSession, session: Session) -> bool:
    """Whether every machine of a session is ready, or the first one of those that share a queue."""
    mine = (Instance.session_id == session.id, Instance.state == InstanceState.LIVE, Instance.reachable_at.is_not(None))
    works_alone = session.nodes == 1 or session.dealt_commands > 0
    return works_alone or (await tx.scalar(select(func.count()).where(*mine)) or 0) >= session.nodes


async def failed_first(tx: AsyncSession, session_id: str) -> Instance | None:
    """Return the machine of a set that failed first, as its rows say."""
    failed = [row for row in await machines_of_session(tx, session_id) if row.state not in PART_OF_SET]
    latest = datetime.max.replace(tzinfo=UTC)
    return min(failed, key=lambda row: (row.terminate_asked_at or row.ended_at or latest, row.n), default=None)


@dataclass(frozen=True, slots=True)
class SetMember:
    """One machine of a set: its place from 0, and where the others reach it."""

    instance_id: str
    rank: int
    host: str


async def members(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, tuple[SetMember, ...]]:
    """Return the machines of running sets in the order of their places, by session, from one query."""
    query = (
        select(Instance.session_id, Instance.id, Instance.node_rank, Instance.set_host)
        .join(Session, Session.id == Instance.session_id)
        .where(Session.id.in_(list(session_ids)), Session.state == SessionState.RUNNING, Session.nodes > 1)
        .where(Instance.state == InstanceState.LIVE, Instance.set_host.is_not(None), Instance.node_rank.is_not(None))
        .order_by(Instance.session_id, Instance.node_rank)
    )
    found: dict[str, tuple[SetMember, ...]] = {}
    rows: Any = await tx.execute(query)
    for session_id, instance_id, rank, host in rows:
        found[session_id] = (*found.get(session_id, ()), SetMember(instance_id, rank, host))
    return found
