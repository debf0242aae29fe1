"""Clocks: the machine's own, and one that travels."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta

import pytest

from bot.clock import SystemClock, TravelClock


def test_the_system_clock_is_aware_utc() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()


async def test_the_system_clock_sleeps() -> None:
    clock = SystemClock()
    before_s = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - before_s >= 0.009


def test_travelling_moves_both_readings() -> None:
    clock = TravelClock()
    now, monotonic_s = clock.now(), clock.monotonic()
    clock.travel(3600)
    assert clock.ahead_s == 3600
    assert timedelta(0) <= clock.now() - now - timedelta(hours=1) < timedelta(seconds=5)
    assert clock.monotonic() - monotonic_s >= 3600


def test_a_clock_cannot_go_back() -> None:
    with pytest.raises(ValueError, match="only travel forward"):
        TravelClock().travel(-1)


async def test_sleepers_wake_when_their_time_has_come() -> None:
    clock = TravelClock()
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    short = asyncio.ensure_future(sleep("short", 60))
    long = asyncio.ensure_future(sleep("long", 3600))
    await asyncio.sleep(0)
    clock.travel(61)
    await short
    assert woken == ["short"]
    clock.travel(3600)
    await long
    assert woken == ["short", "long"]
    await clock.sleep(0.01)
    await clock.sleep(0)


async def test_travel_from_another_thread_wakes_sleepers() -> None:
    clock = TravelClock()
    sleeping = asyncio.ensure_future(clock.sleep(600))
    await asyncio.sleep(0)
    await asyncio.to_thread(clock.travel, 600)
    await asyncio.wait_for(sleeping, 5)
    assert sleeping.done()


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = TravelClock()
    sleeping = asyncio.ensure_future(clock.sleep(600))
    await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    clock.travel(600)
    assert clock._sleepers == set()
