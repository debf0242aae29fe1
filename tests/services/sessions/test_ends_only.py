"""A process that only ends instances: it leaves a ledger of another schema alone, and learns the time from a cloud."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest

from bot.services.runtime import epoch as epoch_module
from bot.services.runtime.clock_guard import GuardedClock, clock_problem
from bot.services.runtime.epoch import Epoch
from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.queries.ends import forget_replica, note_replica
from providers.contract import NotSeen, ObservedInstance, Provider
from tests.services.runtime.test_epoch import HungDisk
from tests.services.sessions.test_end_watchdog import db, watched
from tests.services.sessions.watchdog import OPERATORS, Watched
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
    await looking_on_to_the_end(watched)
    events = len((await w.books()).events)
    await watched.look()
    assert w.alive() == []
    assert watched.pages == [watched.pages[0]]
    assert "terminated" in watched.pages[0]
    assert len((await w.books()).events) == events
    assert [one.from_copy for one in dog.copy.sent] == [True]
    dog.refused = ""
    assert await dog.probe()
    assert dog.copy.sent == ()


async def looking_on_to_the_end(watched: Watched) -> None:
    """Let time pass to the approved end, with a look at least once a minute."""
    until = (await watched.session()).deadline
    assert until is not None
    while watched.w.clock.now() < until - timedelta(seconds=30):
        watched.w.clock.advance(29)
        await watched.look()
    await watched.to_the_end()


async def test_beside_another_replica_nothing_ends_from_the_copy_before_two_pages(watched: Watched) -> None:
    w, dog = watched.w, watched.dog
    await w.running()
    await dog.look()
    dog.refused = "the ledger has another schema"
    await another_writes(watched)
    await watched.look()
    assert ["before the second page" in page for page in watched.pages] == [True]
    w.clock.advance(w.ctx.timing.recovery_page_s)
    await watched.look()
    assert "Ends come from the copy from now on" in watched.pages[1]
    await watched.to_the_end()
    await watched.look()
    assert w.alive() == []


async def test_after_a_replica_that_worked_and_stopped_the_copy_waits_for_two_pages_or_for_the_others(
    watched: Watched,
) -> None:
    w, dog = watched.w, watched.dog
    await w.running()
    await dog.look()
    dog.refused = "the ledger has another schema"
    w.clock.advance(60)
    await another_writes(watched)
    await forget_replica_named(watched, "another")
    await watched.to_the_end()
    await watched.look()
    w.clock.advance(w.ctx.timing.recovery_page_s - 60)
    await watched.look()
    assert len(w.alive()) == 1
    assert len(watched.pages) == 1
    watched.able = 1
    w.clock.advance(120)
    await watched.look()
    assert (len(w.alive()), len(watched.pages)) == (1, 1), "the replica that works on it ends what is due"
    watched.able = None
    await watched.look()
    assert w.alive() == []
    assert "Ends come from the copy from now on" in watched.pages[1]


async def forget_replica_named(watched: Watched, name: str) -> None:
    """A replica stops of its own accord."""
    async with watched.w.ctx.db.write() as tx:
        await forget_replica(tx, name)


@pytest.mark.parametrize("is_signed_off", [True, False], ids=["stopped", "killed"])
async def test_the_process_that_made_the_copy_is_not_another_one_also_hours_later(
    watched: Watched, is_signed_off: bool
) -> None:
    """Its own mark is there when the next process starts, and that of one before it; nobody has worked since."""
    w, dog = watched.w, watched.dog
    await w.running(hours=Decimal(2))
    await another_writes(watched)
    w.clock.advance(61)
    await dog.look()
    w.clock.advance(4)
    assert await dog.probe()
    if is_signed_off:
        await forget_replica_named(watched, dog.me)
    for later_s in (2, 3600):  # A start a moment later, and one that is killed; then one more.
        w.clock.advance(later_s)
        dog = watched.dog = EndWatchdog(dog.ctx, dog.path, f"next-{later_s}", watched.say, watched.others, OPERATORS)
        dog.refused = "the ledger has another schema"
        await watched.look()
        assert (len(w.alive()), watched.pages) == (1, [])
    await watched.to_the_end()
    await watched.look()
    assert w.alive() == []
    assert ["at its approved end, from its copy" in page for page in watched.pages] == [True]


async def test_a_clock_that_no_cloud_has_confirmed_raises_no_doubt_about_the_copy(watched: Watched) -> None:
    """To a clock a day behind, every mark is of now, also that of a replica that has died."""
    w, dog = watched.w, watched.dog
    await w.running(candidates=("vast",))
    await another_writes(watched)
    w.clock.advance(120)
    await dog.look()
    assert await dog.probe()
    machine = MachineClock(w.clock)
    machine.off = timedelta(days=-1)
    dog = watched.dog = EndWatchdog(dog.ctx, dog.path, "next", watched.say, watched.others, OPERATORS)
    dog.refused = "the ledger has another schema"
    dog.ctx.clock = GuardedClock(machine, confirm_s=60.0)
    await watched.look()
    assert watched.pages == []


async def another_writes(watched: Watched) -> None:
    """Another replica writes to the ledger."""
    now = watched.w.clock.now()
    async with watched.w.ctx.db.write() as tx:
        await note_replica(tx, "another", now, now)


async def test_a_disk_that_hangs_delays_no_end(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second folder of the epoch is on a server that went away."""
    w, dog = watched.w, watched.dog
    await w.running()
    dog.ctx.epoch = Epoch((tmp_path / "second",), "me")
    disk = HungDisk(tmp_path / "second")
    monkeypatch.setattr(epoch_module, "WRITE_S", 0.1)
    await watched.to_the_end()
    try:
        async with asyncio.timeout(20):
            await watched.look()
        assert w.alive() == []
        assert dog.healthy
        assert [page for page in watched.pages if "cannot write its epoch, so it launches nothing" in page]
    finally:
        disk.answer()


async def test_a_cloud_is_read_for_the_time_when_the_clock_jumps(watched: Watched) -> None:
    """A process that only ends instances calls no cloud, and would measure the time from before a machine's sleep."""
    w, dog = watched.w, watched.dog
    await w.running(candidates=("vast",), hours=Decimal(1))
    await dog.look()
    dog.refused = "the ledger has another schema"
    watched.able = 0  # Nobody looked who else worked on the ledger while the machine slept; here the others say it.
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
