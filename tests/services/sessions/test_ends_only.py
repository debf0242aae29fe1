"""A process that only ends instances: it leaves a ledger of another schema alone, and learns the time from a cloud."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast

from bot.services.runtime.clock_guard import GuardedClock, clock_problem
from providers.contract import NotSeen, ObservedInstance, Provider
from tests.services.sessions.test_end_watchdog import db, watched
from tests.services.sessions.watchdog import Watched
from tests.support.clock import MachineClock
from tests.support.proxy_provider import InFront

__all__ = ["db", "watched"]


async def test_a_ledger_that_this_program_cannot_work_on_is_neither_read_nor_written(watched: Watched) -> None:
    w, dog = watched.w, watched.dog
    await w.running()
    await dog.look()
    await watched.change(terminate_asked_at=w.clock.now())  # Nothing that the ledger says since counts.
    dog.refused = "the ledger has another schema"
    assert not await dog.probe()
    assert dog.problem == dog.refused
    await watched.to_the_end()
    events = len((await w.books()).events)
    await watched.look()
    assert w.alive() == []
    assert len((await w.books()).events) == events
    assert [one.from_copy for one in dog.copy.sent] == [True]
    dog.refused = ""
    assert await dog.probe()
    assert dog.copy.sent == ()


async def test_a_cloud_is_read_for_the_time_when_the_clock_jumps(watched: Watched) -> None:
    """A process that only ends instances calls no cloud, and would measure the time from before a machine's sleep."""
    w, dog = watched.w, watched.dog
    await w.running(candidates=("vast",), hours=Decimal(1))
    await dog.look()
    dog.refused = "the ledger has another schema"
    machine = MachineClock(w.clock)
    guarded = dog.ctx.clock = GuardedClock(machine)
    calls = Counted(dog.ctx.providers["vast"], guarded, machine.now)
    dog.ctx.providers = {**dog.ctx.providers, "vast": cast("Provider", calls)}
    await watched.look()
    assert calls.reads == 0
    machine.off = timedelta(hours=3)  # The machine slept, and its clock is right.
    await watched.look()
    assert (calls.reads, guarded.has_jumped, clock_problem(guarded)) == (1, False, "")
    await watched.look()
    assert w.alive() == []


class Counted(InFront):
    """A cloud in front of a world's, which shows the time of the world outside in each reply and counts reads."""

    def __init__(self, provider: Provider, clock: GuardedClock, shown: Callable[[], datetime]) -> None:
        super().__init__(provider)
        self.reads, self._clock, self._shown = 0, clock, shown

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """Read one instance."""
        self.reads += 1
        self._clock.note_date(self.name, self._shown(), 0.1)
        return await self.inner.get(ref)
