"""Read what metering needs: the instances that a cloud may be billing, and which of their hours are booked."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_families
from ledger.kernel.states import BILLABLE_INSTANCE, OrphanState
from ledger.models import Instance, LedgerEntry, Orphan

#: Keys that are looked up by one query.
KEYS_TOGETHER = 1_000


async def billable_ids(tx: AsyncSession) -> list[str]:
    """Return the id of every row for which a cloud may be billing, in a fixed order."""
    query = select(Instance.id).where(Instance.state.in_(BILLABLE_INSTANCE)).order_by(Instance.id)
    return list(await tx.scalars(query))


async def billable_instances(tx: AsyncSession, instance_ids: Sequence[str]) -> list[Instance]:
    """Return which of these rows a cloud may still be billing, in a fixed order."""
    of_them = (Instance.id.in_(instance_ids), Instance.state.in_(BILLABLE_INSTANCE))
    return list(await tx.scalars(select(Instance).where(*of_them).order_by(Instance.id)))


async def lock_billable(tx: AsyncSession, instance_ids: Sequence[str]) -> list[Instance]:
    """Lock the families of these rows, and reload the rows that a cloud may still be billing."""
    await lock_families(tx, instance_ids)
    query = select(Instance).where(Instance.id.in_(instance_ids), Instance.state.in_(BILLABLE_INSTANCE))
    return list(await tx.scalars(query.order_by(Instance.id).execution_options(populate_existing=True)))


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
