"""Operators accept an older ledger once, and what was read before that begins nothing again."""

from __future__ import annotations

from ledger.kernel.states import InstanceState
from tests.services.recovery.restoring import Copies, Service, lose_records, restarted


async def test_a_comparison_from_before_the_acceptance_begins_nothing_again(running: Service, copies: Copies) -> None:
    """The watchdog looks, an operator accepts, and then the watchdog writes what it had read."""
    w = running.w
    request_id = await w.approved(candidates=("runpod",))
    copy = await copies.take(*running.databases)
    await running.run(45)
    assert (await w.end(request_id)).ok
    await running.run(60, 30)
    async with restarted(running, copy) as later:
        await later.run(60, 15)
        await later.dog.look()
        w.clock.advance(2)
        assert (await later.accept()).ok
        w.clock.advance(1)
        await later.dog.probe()
        assert await later.differences() == []
        again = await later.w.approved(candidates=("runpod",))
        await later.run(60, 15)
        assert [one.state for one in (await later.w.view(again)).instances] == [InstanceState.LIVE]
        assert later.pages == ["ledger/older"]
    lose_records(running.folder)
    async with restarted(running, copy) as later:
        assert (await later.differences())[0].startswith("Nothing shows how old the ledger is")
        assert (await later.accept()).ok
