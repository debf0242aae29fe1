"""What may be billed, and what is booked of it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

from sqlalchemy import update

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, OrphanState
from ledger.models import Instance, Request
from ledger.queries.metering import (
    KEYS_TOGETHER,
    BilledInstance,
    billable_ids,
    billable_instances,
    billed_rows,
    booked_keys,
    lock_billable,
    unended_orphans,
)
from tests.support import rows
from tests.support.databases import somebody_waits


async def test_what_may_be_billed(db: Database) -> None:
    async with db.write() as tx:
        found = {state: await rows.instance(tx, state) for state in InstanceState}
        orphans = [await rows.stray(tx, state) for state in OrphanState]
    billed = sorted(found[state].id for state in (InstanceState.LIVE, InstanceState.STOPPED, InstanceState.TERMINATING))
    some = [found[state].id for state in (InstanceState.STOPPED, InstanceState.LIVE, InstanceState.GONE)]
    async with db.write() as tx:
        assert await billable_ids(tx) == billed
        for ask in (billable_instances, lock_billable):
            assert [row.id for row in await ask(tx, some)] == sorted(some[:2])
        assert [one.id for one in await unended_orphans(tx)] == [
            one.id for one in orphans if one.state is not OrphanState.GONE
        ]


async def test_rows_are_read_fresh_once_their_families_are_locked(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        row, other = await rows.instance(tx), await rows.instance(tx)
    ids = [row.id, other.id]

    async def lock() -> list[int | None]:
        async with pg_db.write() as tx:
            await billable_instances(tx, ids)  # As they were before the lock.
            return [one.gpu_booked_s for one in await lock_billable(tx, ids)]

    async with pg_db.write() as tx:
        await tx.get_one(Request, other.request_id, with_for_update=True)
        locking = asyncio.create_task(lock())
        await somebody_waits(pg_db, locking)
        await tx.execute(update(Instance).where(Instance.id == other.id).values(gpu_booked_s=7))
    assert set(await locking) == {None, 7}


async def test_keys_under_which_something_is_booked(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx)
        for key in ("first", "last", "unasked"):
            await rows.entry(tx, row, "1", key=key)
    keys = ["first", *(f"key{n}" for n in range(KEYS_TOGETHER)), "last"]
    async with db.read() as tx:
        assert await booked_keys(tx, keys) == {"first", "last"}
        assert await booked_keys(tx, []) == set()


async def test_every_row_that_may_be_billed_with_what_an_hour_costs(db: Database) -> None:
    async with db.read() as tx:
        assert await billed_rows(tx) == []
    async with db.write() as tx:
        prices: dict[str, Any] = {"price_usd_h": Decimal("0.55"), "storage_usd_h": Decimal("0.05")}
        made = {state: await rows.instance(tx, state, **prices) for state in InstanceState}
    billed = [made[state] for state in (InstanceState.LIVE, InstanceState.STOPPED, InstanceState.TERMINATING)]
    async with db.read() as tx:
        columns = BilledInstance._fields
        assert await billed_rows(tx) == [
            BilledInstance._make(getattr(row, name) for name in columns)
            for row in sorted(billed, key=lambda row: row.id)
        ]
        assert {(row.price_usd_h, row.storage_usd_h) for row in await billed_rows(tx)} == {tuple(prices.values())}
