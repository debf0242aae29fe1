"""Read and settle what instances may have cost beyond their likely end, until the latest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, func, literal, or_, select, type_coerce, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_family
from ledger.kernel.columns import MicroUsd
from ledger.kernel.entry_kind import USED
from ledger.models import Instance, LedgerEntry, Session
from ledger.queries.rollup import AMOUNT


def unsettled_sum(conditions: Sequence[ColumnElement[bool]], since: datetime | None = None) -> ColumnElement[Decimal]:
    """Build the sum of the unsettled dollars of some sessions, for another query; the conditions are on the sessions.

    With `since`, of what may have been used since then: it counts in every period that a part of its time lies in.
    """
    total = func.coalesce(func.sum(Instance.unsettled_usd), literal(Decimal(0), MicroUsd()))
    query = select(type_coerce(total, MicroUsd)).join(Session, Session.id == Instance.session_id)
    within = [] if since is None else [Instance.latest_end_at > since]
    return query.where(Instance.unsettled_usd.is_not(None), *within, *conditions).scalar_subquery()


async def used_behind(tx: AsyncSession, instance_id: str, at: datetime) -> list[tuple[str, str, Decimal, datetime]]:
    """Return `(key, component, dollars, time)` of an instance's entries that end after `at`, and its parts of hours."""
    query = select(LedgerEntry.key, LedgerEntry.component, AMOUNT, LedgerEntry.at).where(
        LedgerEntry.instance_id == instance_id,
        LedgerEntry.kind.in_(USED),
        or_(LedgerEntry.at > at, LedgerEntry.key.like("%/stop-%")),
    )
    rows: Any = await tx.execute(query.order_by(LedgerEntry.at, LedgerEntry.id))
    return [tuple(row) for row in rows]


async def settle_instance(tx: AsyncSession, instance_id: str) -> None:
    """Note that nothing of an instance's cost is open any more."""
    await lock_family(tx, Instance, instance_id)
    mine = (Instance.id == instance_id, Instance.unsettled_usd.is_not(None))
    await tx.execute(update(Instance).where(*mine).values(unsettled_usd=None))


async def unsettled_of_earlier(tx: AsyncSession, newest: Mapping[str, str]) -> dict[str, Decimal]:
    """Return by session what is unsettled of its earlier instances; `newest` is the newest instance → its session."""
    query = select(Instance.session_id, type_coerce(func.sum(Instance.unsettled_usd), MicroUsd)).where(
        Instance.session_id.in_(newest.values()), Instance.id.not_in(newest), Instance.unsettled_usd.is_not(None)
    )
    rows: Any = await tx.execute(query.group_by(Instance.session_id))
    return dict(rows.all())
