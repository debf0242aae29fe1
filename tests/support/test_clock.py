"""The stepped clock: virtual time is a tool of many tests, so it is tested itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.support.clock import START, SteppedClock


async def test_sleepers_wake_in_the_order_of_their_deadlines(clock: SteppedClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    await asyncio.gather(sleeper("c", 3600), sleeper("a", 1), sleeper("b", 60), sleeper("a2", 1))
    assert woken == [("a", 1), ("a2", 1), ("b", 60), ("c", 3600)]
    assert clock.now() == START + timedelta(hours=1)


async def test_a_sleeper_may_sleep_again(clock: SteppedClock) -> None:
    woken: list[tuple[str, float]] = []

    async def every(name: str, seconds: float, times: int) -> None:
        for _ in range(times):
            await clock.sleep(seconds)
            woken.append((name, clock.monotonic()))

    await asyncio.gather(every("two", 2, 3), every("three", 3, 2))
    assert woken == [("two", 2), ("three", 3), ("two", 4), ("three", 6), ("two", 6)]


async def test_no_time_passes_for_a_sleep_of_nothing(clock: SteppedClock) -> None:
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.now() == START


async def test_by_hand_only_when_asked() -> None:
    clock = SteppedClock(auto=False)
    sleeping = asyncio.create_task(clock.sleep(10))
    await clock.settle()
    assert not sleeping.done()
    assert clock.advance(9) == START + timedelta(seconds=9)
    await clock.settle()
    assert not sleeping.done()
    clock.advance(timedelta(seconds=1))
    await sleeping
    assert clock.monotonic() == 10


async def test_run_stops_at_every_deadline_on_the_way() -> None:
    clock = SteppedClock(auto=False)
    beats: list[float] = []

    async def beat() -> None:
        while True:
            await clock.sleep(10)
            beats.append(clock.monotonic())

    beating = asyncio.create_task(beat())
    await clock.run(35)
    assert beats == [10, 20, 30]
    assert clock.monotonic() == 35
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    await clock.run(100)
    assert beats == [10, 20, 30]


async def test_a_cancelled_sleeper_does_not_hold_time_up(clock: SteppedClock) -> None:
    gone = asyncio.create_task(clock.sleep(5))
    stays = asyncio.create_task(clock.sleep(7))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert clock.monotonic() == 7


async def test_the_wall_can_jump_and_time_only_goes_forward(clock: SteppedClock) -> None:
    assert clock.jump(-timedelta(hours=1)) == START - timedelta(hours=1)
    assert clock.monotonic() == 0
    with pytest.raises(ValueError, match="goes forward only"):
        clock.advance(-1)
