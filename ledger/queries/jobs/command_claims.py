"""Read and write to which machine each command of a queue was dealt, where several machines share one queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.states import OPEN_INSTANCE, InstanceState, SessionState
from ledger.kernel.stored_job import StoredJob
from ledger.models import CommandClaim, CommandResult, Instance, Request, Session


@dataclass(slots=True)
class SharedQueue:
    """Hold what became of the commands of a queue that several machines share, and the machines that have them."""

    #: The job whose queue it is.
    job: StoredJob
    #: By number, whether it failed.
    failed: dict[int, bool] = field(default_factory=dict)
    #: By number, the machines that it was dealt to, in that order.
    claims: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    machines: dict[str, InstanceState] = field(default_factory=dict)

    @property
    def over(self) -> frozenset[str]:
        """Return the machines that are proved gone, or that never were: nothing comes from them any more."""
        return frozenset(key for key, state in self.machines.items() if state not in OPEN_INSTANCE)

    @property
    def live(self) -> frozenset[str]:
        """Return the machines that their clouds have, and that were not ordered to end."""
        return frozenset(key for key, state in self.machines.items() if state is InstanceState.LIVE)


async def shared_queues(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, SharedQueue]:
    """Return the shared queues of these sessions, from four queries for any number of them."""
    ids = list(session_ids)
    jobs: Any = await tx.execute(
        select(Session.id, Request.job).join(Request, Request.id == Session.request_id).where(Session.id.in_(ids))
    )
    found = {session_id: SharedQueue(job) for session_id, job in jobs}
    bad = case((CommandResult.exit_code == 0, 0), else_=1)
    results = select(CommandResult.session_id, CommandResult.number, bad)
    for session_id, number, failed in await tx.execute(results.where(CommandResult.session_id.in_(ids))):
        found[session_id].failed[number] = bool(failed)
    claims = select(CommandClaim).where(CommandClaim.session_id.in_(ids)).order_by(CommandClaim.round)
    for claim in await tx.scalars(claims):
        found[claim.session_id].claims[claim.number].append(claim.instance_id)
    machines = select(Instance.session_id, Instance.id, Instance.state).where(Instance.session_id.in_(ids))
    for session_id, instance_id, state in await tx.execute(machines):
        found[session_id].machines[instance_id] = state
    return found


async def add_claims(
    tx: AsyncSession, session_id: str, instance_id: str, rounds: Sequence[tuple[int, int]], now: datetime
) -> list[int]:
    """Deal commands, each as its number and how often it was dealt before. Return those that nobody else dealt now."""
    if not rounds:
        return []
    rows = [
        {"session_id": session_id, "number": number, "round": before, "instance_id": instance_id, "dealt_at": now}
        for number, before in rounds
    ]
    insert = insert_for(tx, CommandClaim).values(rows)
    once = insert.on_conflict_do_nothing(index_elements=["session_id", "number", "round"])
    return sorted((await tx.scalars(once.returning(CommandClaim.number))).all())


async def sharing_sessions(tx: AsyncSession) -> list[str]:
    """Return the running sessions whose machines share a queue."""
    query = select(Session.id).where(Session.dealt_commands > 0, Session.state == SessionState.RUNNING)
    return list(await tx.scalars(query.order_by(Session.id)))


async def ended_counts(tx: AsyncSession, session_ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return by session how many commands of its queue are done, and how many failed."""
    bad = func.sum(case((CommandResult.exit_code == 0, 0), else_=1))
    query = select(CommandResult.session_id, func.count(), bad).group_by(CommandResult.session_id)
    rows: Any = await tx.execute(query.where(CommandResult.session_id.in_(list(session_ids))))
    return {session_id: (int(count) - int(failed), int(failed)) for session_id, count, failed in rows}
