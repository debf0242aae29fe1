"""Read the machines of a session: a later row may repeat a create that its cloud refused for now."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.lookups import instances_of_session


def machines(rows: Iterable[Instance]) -> list[Instance]:
    """Return the rows that are machines, in order: each but the refused ones whose create a later row repeats.

    A row repeats the create of another with the same grant, option and place in its set. Of a set it is one row for
    each machine.
    """
    rows = list(rows)
    newest = {(row.session_id, row.grant_id, row.option_id, row.node_rank): row.n for row in sorted(rows, key=_number)}
    return [
        row
        for row in rows
        if row.state is not InstanceState.REJECTED
        or row.n == newest[row.session_id, row.grant_id, row.option_id, row.node_rank]
    ]


def _number(row: Instance) -> int:
    return row.n


async def machines_of_session(tx: AsyncSession, session_id: str) -> list[Instance]:
    """Return the machines of a session in order, closed ones included."""
    return machines(await instances_of_session(tx, session_id))
