"""Read what is booked behind the likely end of an instance, and settle what it may have cost until the latest one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_families
from ledger.kernel.entry_kind import USED
from ledger.models import Instance, LedgerEntry
from ledger.queries.rollup import AMOUNT


async def used_behind(tx: AsyncSession, instance_id: str, at: datetime) -> list[tuple[str, str, Decimal, datetime]]:
    """Return `(key, component, dollars, time)` of an instance's entries that end after `at`, and its parts of hours."""
    query = select(LedgerEntry.key, LedgerEntry.component, AMOUNT, LedgerEntry.at).where(
        LedgerEntry.instance_id == instance_id,
        LedgerEntry.kind.in_(USED),
        or_(LedgerEntry.at > at, LedgerEntry.key.like("%/stop-%")),
    )
    rows: Any = await tx.execute(query.order_by(LedgerEntry.at, LedgerEntry.id))
    return [tuple(row) for row in rows]


async def settle_instances(tx: AsyncSession, instance_ids: Collection[str]) -> None:
    """Note that nothing of these instances' cost is open any more, in a fixed number of statements."""
    await lock_families(tx, instance_ids)
    theirs = (Instance.id.in_(instance_ids), Instance.unsettled_usd.is_not(None))
    await tx.execute(update(Instance).where(*theirs).values(unsettled_usd=None))
