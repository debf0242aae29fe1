"""A restored machine's clock may be wrong, and no cloud has confirmed it when the ledger's age is noticed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from bot.services.runtime.epoch import load
from ledger.queries.recovery.older import older_mark
from tests.services.recovery.restoring import Copies, Service, restarted

WRONG = [timedelta(hours=-24), timedelta(hours=1), timedelta(days=365)]
NEAR = timedelta(minutes=1)


@pytest.mark.parametrize("off", WRONG)
async def test_what_was_approved_before_is_void_also_when_a_wrong_clock_noticed_the_age(
    running: Service, copies: Copies, off: timedelta
) -> None:
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await running.run(45)
    assert (await w.end(request_id)).ok
    await running.run(180, 30)
    w.machine.off = off
    w.ctx = replace(w.ctx, clock=(clock := GuardedClock(w.machine, confirm_s=CONFIRM_S)))
    async with restarted(running, copy) as later:
        assert await later.differences()
        w.machine.off = timedelta()
        for cloud in ("vast", "runpod"):
            clock.note_date(cloud, w.clock.now(), 0.1)
        await later.run(15)
        async with later.w.ctx.db.read() as tx:
            mark = await older_mark(tx)
        assert mark is not None
        assert abs(mark.at - w.clock.now()) < NEAR
        reply = await later.accept()
        assert reply.sentence.startswith("The ledger is accepted, and GPU Shopper buys again. 1 approved launch was")
        await later.run(60)
        assert len(w.engine.creates) == 1
        assert all(entry.at <= w.clock.now() for entry in load(later.folder))
        assert await later.differences() == []


@pytest.mark.parametrize("off", WRONG)
async def test_an_epoch_that_a_wrong_clock_wrote_at_a_start_counts_no_longer_than_others(
    running: Service, copies: Copies, off: timedelta
) -> None:
    w = running.w
    await w.running(candidates=("runpod",))
    await running.run(15)
    newest = max(entry.at for entry in load(running.folder))
    w.clock.advance(1)
    w.machine.off = off
    w.ctx = replace(w.ctx, clock=GuardedClock(w.machine, confirm_s=CONFIRM_S))
    async with restarted(running, await copies.take(*running.databases)) as later:
        w.machine.off = timedelta()
        (own,) = [entry for entry in load(later.folder) if entry.replica == "later"]
        assert newest <= own.at <= w.clock.now()
