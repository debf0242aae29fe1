"""Read what metering needs: the instances that a cloud may be billing, and which of their hours are booked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_families
from ledger.kernel.states import BILLABLE_INSTANCE, InstanceState, OrphanState
from ledger.models import Instance, LedgerEntry, Orphan

#: Keys that are looked up by one query.
KEYS_TOGETHER = 1_000


class BilledInstance(NamedTuple):
    """Hold the columns of an instance that say what it costs: a whole fleet is read each minute, so no objects."""

    id: str
    session_id: str
    state: InstanceState
    cloud: str
    account: str
    node_rank: int | None
    created_at: datetime
    ended_at: datetime | None
    price_usd_h: Decimal
    storage_usd_h: Decimal
    sent_at: datetime | None
    billing_from: datetime | None
    billing_until: datetime | None
    storage_from: datetime | None
    storage_until: datetime | None
    gpu_booked_s: int | None
    gpu_split_s: int | None
    storage_split_s: int | None
    unbilled_at: datetime | None
    absent_at: list[str]
    terminate_acked_at: datetime | None


#: An instance, or the columns of one that say what it costs.
Billable = Instance | BilledInstance
BILLED_COLUMNS: tuple[Any, ...] = tuple(getattr(Instance, name) for name in BilledInstance._fields)


async def billable_ids(tx: AsyncSession) -> list[str]:
    """Return the id of every row for which a cloud may be billing, in a fixed order."""
    query = select(Instance.id).where(Instance.state.in_(BILLABLE_INSTANCE)).order_by(Instance.id)
    return list(await tx.scalars(query))


async def billable_instances(tx: AsyncSession, instance_ids: Sequence[str]) -> list[BilledInstance]:
    """Return which of these rows a cloud may still be billing, in a fixed order."""
    of_them = (Instance.id.in_(instance_ids), Instance.state.in_(BILLABLE_INSTANCE))
    rows = await tx.execute(select(*BILLED_COLUMNS).where(*of_them).order_by(Instance.id))
    return [BilledInstance._make(row) for row in rows]


async def billed_rows(tx: AsyncSession) -> list[BilledInstance]:
    """Return the rows for which a cloud may be billing, with what an hour of each costs."""
    rows = await tx.execute(select(*BILLED_COLUMNS).where(Instance.state.in_(BILLABLE_INSTANCE)).order_by(Instance.id))
    return [BilledInstance._make(row) for row in rows]


async def lock_billable(tx: AsyncSession, instance_ids: Sequence[str]) -> list[BilledInstance]:
    """Lock the families of these rows, and read the rows that a cloud may still be billing."""
    await lock_families(tx, instance_ids)
    return await billable_instances(tx, instance_ids)


async def booked_keys(tx: AsyncSession, keys: Sequence[str]) -> set[str]:
    """Return which of these keys have a booked entry."""
    found: set[str] = set()
    for first in range(0, len(keys), KEYS_TOGETHER):
        some = keys[first : first + KEYS_TOGETHER]
        found.update(await tx.scalars(select(LedgerEntry.key).where(LedgerEntry.key.in_(some))))
    return found


async def unended_orphans(tx: AsyncSession) -> list[Orphan]:
    """Return every orphan that is not gone, in a fixed order."""
    return list(await tx.scalars(select(Orphan).where(Orphan.state != OrphanState.GONE).order_by(Orphan.id)))
