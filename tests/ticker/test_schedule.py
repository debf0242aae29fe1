"""The ticker: wakes jobs, never runs one twice at a time, survives their errors, and lets running work finish."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta, tzinfo
from typing import Self

import pytest
from apscheduler.schedulers import base
from apscheduler.triggers import interval

from bot.clock import SystemClock
from bot.ticker.schedule import ROUNDS_MAX, ScheduledJob, Ticker

NEVER_S = 3600.0
SOON_S = 5.0


class Work:
    """A job's work that tests can hold up and look at. `left` is how many runs find something."""

    def __init__(self, left: int = 0, *, held: bool = False) -> None:
        self.left = left
        self.runs = 0
        self.most_at_once = 0
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.ran = asyncio.Condition()
        self._at_once = 0
        if not held:
            self.gate.set()

    async def __call__(self) -> int:
        self._at_once += 1
        self.begun.set()
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.gate.wait()
        finally:
            self._at_once -= 1
        self.left -= 1
        async with self.ran:
            self.runs += 1
            self.ran.notify_all()
        return int(self.left >= 0)

    async def until(self, runs: int) -> None:
        async with asyncio.timeout(SOON_S), self.ran:
            await self.ran.wait_for(lambda: self.runs >= runs)


async def test_every_job_looks_at_once_and_drains() -> None:
    work, once = Work(3), Work(3)
    ticker = Ticker([ScheduledJob("drains", work, NEVER_S), ScheduledJob("looks", once, NEVER_S, drain=False)])
    seen = [ticker.running]
    ticker.start()
    await work.until(4)
    await once.until(1)
    seen.append(ticker.running)
    assert once.runs == 1
    await ticker.stop()
    assert [*seen, ticker.running] == [False, True, False]


async def test_the_interval_wakes_a_job_again() -> None:
    work = Work()
    ticker = Ticker([ScheduledJob("often", work, 0.01)])
    ticker.start()
    await work.until(3)
    await ticker.stop()
    assert work.most_at_once == 1


class Machine(SystemClock):
    """A machine whose wall clock is `off`, as the scheduler sees it, and which is looked at all the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, off: timedelta) -> None:
        self.off, machine = off, self

        class Wall(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                return cls.fromtimestamp(SystemClock().now().timestamp() + machine.off.total_seconds(), tz)

        monkeypatch.setattr(base, "datetime", Wall)
        monkeypatch.setattr(interval, "datetime", Wall)

    def now(self) -> datetime:
        return super().now() + self.off

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_jobs_keep_their_pace_when_the_wall_clock_is_set_back_a_year(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, work = Machine(monkeypatch, timedelta(days=365)), Work()
    ticker = Ticker([ScheduledJob("often", work, 0.01)], machine)
    ticker.start()
    await work.until(2)
    machine.off = timedelta()
    await work.until(work.runs + 4)
    await ticker.stop()


async def test_one_hint_wakes_every_job_that_listens() -> None:
    hint, hurried = asyncio.Event(), []
    one, two, deaf = Work(), Work(), Work()
    ticker = Ticker(
        [
            ScheduledJob("one", one, NEVER_S, (hint,)),
            ScheduledJob("two", two, NEVER_S, (hint,), hurry=lambda: hurried.append(1)),
            ScheduledJob("deaf", deaf, NEVER_S),
        ]
    )
    ticker.start()
    for work in (one, two, deaf):
        await work.until(1)
    hint.set()
    await one.until(2)
    await two.until(2)
    assert (deaf.runs, hurried, hint.is_set()) == (1, [1], False)
    await ticker.stop()


async def test_a_job_never_runs_twice_at_a_time_and_a_hint_during_a_run_is_not_lost() -> None:
    hint, work = asyncio.Event(), Work(held=True)
    ticker = Ticker([ScheduledJob("slow", work, 0.01, (hint,))])
    ticker.start()
    for _ in range(50):
        hint.set()
        await asyncio.sleep(0)
    work.gate.set()
    await work.until(2)
    await ticker.stop()
    assert work.most_at_once == 1


async def test_an_error_is_logged_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    fine = asyncio.Event()
    failed = 0

    async def flaky() -> int:
        nonlocal failed
        if failed < 3:
            failed += 1
            raise OSError("the database is away")
        fine.set()
        return 0

    ticker = Ticker([ScheduledJob("flaky", flaky, NEVER_S)])
    with caplog.at_level(logging.ERROR):
        for count in (1, 2, 3):
            await ticker._loops[0].once(asyncio.Event())
            assert failed == count
    seen = [ticker.failing]
    assert "flaky failed" in caplog.text
    await ticker._loops[0].once(asyncio.Event())
    assert [*seen, ticker.failing] == [("flaky",), ()]
    assert fine.is_set()


async def test_a_job_that_always_finds_work_lets_the_others_have_their_turn() -> None:
    busy, other = Work(10_000), Work()
    ticker = Ticker([ScheduledJob("busy", busy, NEVER_S), ScheduledJob("other", other, NEVER_S)])
    loop = ticker._loops[0]
    await loop.once(asyncio.Event())
    assert busy.runs == ROUNDS_MAX
    assert loop.wake.is_set()


async def test_stop_lets_running_work_finish_and_takes_no_more() -> None:
    work = Work(5, held=True)
    ticker = Ticker([ScheduledJob("slow", work, NEVER_S)])
    ticker.start()
    await asyncio.wait_for(work.begun.wait(), SOON_S)
    stopping = asyncio.create_task(ticker.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    work.gate.set()
    await stopping
    assert work.runs == 1


async def test_what_does_not_finish_in_time_is_cancelled_and_named(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(held=True)
    ticker = Ticker([ScheduledJob("stuck", work, NEVER_S)])
    ticker.start()
    await asyncio.wait_for(work.begun.wait(), SOON_S)
    with caplog.at_level(logging.WARNING):
        await ticker.stop(grace_s=0.01)
    assert "job-stuck did not finish" in caplog.text
    assert work.runs == 0


async def test_stopping_before_starting_is_nothing() -> None:
    await Ticker([ScheduledJob("idle", Work(), NEVER_S)]).stop()


async def test_a_run_that_hangs_leaves_room_for_others_and_no_more_than_the_width() -> None:
    hint, work = asyncio.Event(), Work(held=True)
    ticker = Ticker([ScheduledJob("wide", work, NEVER_S, (hint,), width=2)])
    ticker.start()
    for _ in range(4):
        await work.begun.wait()
        work.begun.clear()
        hint.set()
        if work.most_at_once == 2:
            break
    for _ in range(5):
        hint.set()
        await asyncio.sleep(0)
    assert (work.most_at_once, work.runs) == (2, 0)
    work.gate.set()
    await work.until(3)
    await ticker.stop()
    assert work.most_at_once == 2


async def test_a_clock_moved_by_hand_wakes_each_job_at_its_pace_and_waits_for_what_that_makes() -> None:
    hint = asyncio.Event()
    often, hourly, follows, hurried = Work(), Work(), Work(), []

    async def makes_work() -> int:
        hint.set()
        return await often()

    ticker = Ticker(
        [
            ScheduledJob("often", makes_work, 10, drain=False, hurry=lambda: hurried.append(1)),
            ScheduledJob("hourly", hourly, NEVER_S),
            ScheduledJob("follows", follows, NEVER_S * 9, (hint,)),
        ]
    )
    ticker.start()
    await follows.until(1)
    assert await ticker.pass_over(600, SOON_S)
    before = (often.runs, hourly.runs, follows.runs)
    for _ in range(6):
        assert await ticker.pass_over(600, SOON_S)
    assert (often.runs - before[0], hourly.runs - before[1], len(hurried)) == (6, 1, 7)
    assert follows.runs > before[2]
    hourly.gate.clear()
    assert not await ticker.pass_over(NEVER_S, 0.001)
    hourly.gate.set()
    assert await ticker.pass_over(0, SOON_S)
    await ticker.stop()
