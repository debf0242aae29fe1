"""Disks that are kept while their instance is stopped."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.retained_disks import add_disk, change_disk, open_disks, stopped_instances
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)


async def keep(tx: Tx, name: str, of: Instance, hours: int, **values: Any) -> bool:
    facts = {"owner": rows.ADA.ref, "cloud": of.cloud, "price_usd_h": Decimal("0.01"), "since": START}
    return await add_disk(
        tx, id=name, session_id=of.session_id, instance_id=of.id, until=START + hours * HOUR, **(facts | values)
    )


async def test_instances_that_are_stopped_by_an_order_or_for_a_checkpoint(db: Database) -> None:
    step, over = CheckpointStep, InstanceState.TERMINATING
    async with db.write() as tx:
        held = await rows.instance(tx, over, checkpoint_step=step.HELD, status="stopped")
        stopped = await rows.instance(tx, InstanceState.STOPPED)
        await rows.instance(tx, over, checkpoint_step=step.HELD, status="running")
        await rows.instance(tx, over, checkpoint_step=step.PASSED, status="stopped")
        await rows.instance(tx, InstanceState.LIVE, checkpoint_step=step.HELD, status="stopped")
    async with db.read() as tx:
        found = await stopped_instances(tx)
        assert [(row.id, session.id) for row, session in found] == [
            (held.id, held.session_id),
            (stopped.id, stopped.session_id),
        ]


async def test_one_disk_of_an_instance_is_kept_at_a_time(db: Database) -> None:
    async with db.write() as tx:
        one, other, third = [await rows.instance(tx, InstanceState.STOPPED) for _ in range(3)]
        assert await keep(tx, "dsk_b", one, 9)
        assert not await keep(tx, "dsk_again", one, 1)
        assert await keep(tx, "dsk_c", other, 2)
        assert await keep(tx, "dsk_a", third, 9)
        assert await keep(tx, "dsk_ended", third, 1, ended_at=START)
    async with db.read() as tx:
        assert [disk.id for disk in await open_disks(tx)] == ["dsk_c", "dsk_a", "dsk_b"]
        some = await open_disks(tx, [one.session_id, third.session_id, "ses_none"])
        assert [disk.id for disk in some] == ["dsk_a", "dsk_b"]
        assert await open_disks(tx, []) == []
    async with db.write() as tx:
        assert await change_disk(tx, "dsk_b", ended_at=START + HOUR, booked_h=1)
        assert not await change_disk(tx, "dsk_b", booked_h=2)
        assert not await change_disk(tx, "dsk_none", booked_h=2)
        assert await keep(tx, "dsk_new", one, 3)
    async with db.read() as tx:
        assert [(disk.id, disk.booked_h) for disk in await open_disks(tx)] == [
            ("dsk_c", 0),
            ("dsk_new", 0),
            ("dsk_a", 0),
        ]
