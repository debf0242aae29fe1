"""Read and write the results of a queue's commands: each is stored once, however often it is reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.models import CommandResult, Instance


async def add_results(tx: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Store results that are not there yet, in one statement."""
    if rows:
        insert = insert_for(tx, CommandResult).on_conflict_do_nothing(index_elements=["session_id", "number"])
        await tx.execute(insert, list(rows))


async def results_of(tx: AsyncSession, session_id: str) -> list[CommandResult]:
    """Return the results of a session's queue, in the order of the queue."""
    rows = await tx.scalars(
        select(CommandResult).where(CommandResult.session_id == session_id).order_by(CommandResult.number)
    )
    return list(rows)


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """Say which commands of a queue have a result from any machine of the session, and how many of them failed."""

    numbers: frozenset[int] = frozenset()
    failed: int = 0


NO_RESULTS = EarlierResults()


async def earlier_results(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, EarlierResults]:
    """Return by instance which commands of its session's queue have a result, from one query."""
    failed = case((CommandResult.exit_code == 0, 0), else_=1)
    rows: Any = await tx.execute(
        select(Instance.id, CommandResult.number, failed)
        .join(CommandResult, CommandResult.session_id == Instance.session_id)
        .where(Instance.id.in_(list(instance_ids)))
    )
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for instance_id, number, bad in rows:
        found[instance_id].append((number, bad))
    return {
        key: EarlierResults(frozenset(number for number, _ in each), sum(bad for _, bad in each))
        for key, each in found.items()
    }
