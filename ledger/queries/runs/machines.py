"""Tell which rows of a session are its machines: a later row may repeat a create that its cloud refused for now."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.lookups import instances_of_session


def order_of(row: Instance) -> tuple[str, str, str, int | None]:
    """Return what a row has in common with each row that repeats its create."""
    return row.session_id, row.grant_id, row.option_id, row.node_rank


def repeated(rows: Iterable[Instance]) -> dict[str, Instance]:
    """Return the refused rows whose create a later row repeats, as that later row's id → the refused row before it.

    Both have the same grant, option and place in their set.
    """
    newest: dict[tuple[str, str, str, int | None], Instance] = {}
    before: dict[str, Instance] = {}
    for row in sorted(rows, key=lambda row: row.n):
        refused = newest.get(order_of(row))
        if refused is not None and refused.state is InstanceState.REJECTED:
            before[row.id] = refused
        newest[order_of(row)] = row
    return before


def machines(rows: Iterable[Instance]) -> list[Instance]:
    """Return the rows that are machines, in order: each but the refused ones whose create a later row repeats.

    Of a set it is one row for each machine.
    """
    rows = list(rows)
    refused = {row.id for row in repeated(rows).values()}
    return [row for row in rows if row.id not in refused]


async def machines_of_session(tx: AsyncSession, session_id: str) -> list[Instance]:
    """Return the machines of a session in order, closed ones included."""
    return machines(await instances_of_session(tx, session_id))
