"""A database server fails over to a standby that lags, within the seconds after a launch: nothing is bought twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.services.instances.launch_spec import may_send
from ledger.core import claim_rows
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from tests.services.recovery.restoring import Copies, Service


@pytest.mark.parametrize("watched", [True, False], ids=["a look before it", "no look yet"])
async def test_what_this_process_has_just_sent_is_never_sent_again(
    running: Service, copies: Copies, watched: bool
) -> None:
    """The ticker's turn comes before the watchdog's next one."""
    w = running.w
    await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    w.clock.advance(5)
    if watched:
        await running.dog.look()
        await running.dog.probe()
    await w.settle(3)
    assert len(w.engine.creates) == 1
    before, standby = w.ctx, Database(copy)
    w.ctx = replace(before, db=standby)
    try:
        w.clock.advance(3)
        await w.settle(3)
        assert (len(w.engine.creates), len(w.alive())) == (1, 1)
        assert [row.state for row in (await w.books()).instances] == [InstanceState.LIVE]
    finally:
        await standby.close()
        w.ctx = before


async def test_a_commit_to_send_compares_the_ledger_with_its_epoch(running: Service, copies: Copies) -> None:
    """No listing shows what was lost: the event that the ledger lacks is enough, and the row waits."""
    w = running.w
    await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await w.ask(candidates=("vast",))
    await running.dog.look()
    standby = Database(copy)
    ctx = replace(w.ctx, db=standby)
    try:
        now = w.clock.now()
        ((held, row),) = await claim_rows(
            standby, Instance, now=now, states={InstanceState.READY}, limit=1, lease=timedelta(seconds=60)
        )
        async with standby.write() as tx:
            assert not await may_send(ctx, tx, held, row.grant_id, row.session_id, now)
        async with standby.read() as tx:
            later = await tx.get_one(Instance, row.id)
        assert later.state is InstanceState.READY
        assert later.due_at is not None
        assert later.due_at > now
    finally:
        await standby.close()
