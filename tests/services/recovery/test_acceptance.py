"""Operators accept an older ledger once, and what was read before that begins nothing again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.services.runtime.clock_guard import GuardedClock
from ledger.kernel.clock import Clock
from ledger.kernel.states import InstanceState
from tests.services.recovery.restoring import Copies, Service, lose_records, restarted


@dataclass
class Ahead:
    """A machine's clock that is a day ahead."""

    base: Clock

    def now(self) -> datetime:
        return self.base.now() + timedelta(days=1)

    def monotonic(self) -> float:
        return self.base.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.base.sleep(seconds)


async def test_an_acceptance_by_a_clock_ahead_hides_no_later_restore(running: Service, copies: Copies) -> None:
    w = running.w
    first = await copies.take(*running.databases)
    await w.ask(candidates=("vast",))
    await running.run(5)
    async with restarted(running, first) as later:
        right = later.w.ctx
        await later.run(5)
        clock = GuardedClock(Ahead(w.clock), confirm_s=60.0)
        later.w.ctx = replace(right, clock=clock)
        refused = await later.accept()
        assert (refused.code, "no cloud has confirmed" in refused.sentence) == ("clock_wrong", True)
        later.w.ctx = replace(right, clock=Ahead(w.clock))
        assert (await later.accept()).ok
        later.w.ctx = right
        await later.run(5)
        assert await later.differences() == []
        second = await copies.take(*later.databases)
        w.clock.advance(120)
        await later.w.ask(candidates=("runpod",))
        await later.run(5)
    async with restarted(running, second, "third") as third:
        assert (await third.differences())[0].startswith("The ledger is ")


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
