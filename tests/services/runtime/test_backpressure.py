"""Follow-up work steps aside for acknowledgements while the loop has no time to spare, and never starves."""

from __future__ import annotations

import asyncio

from bot.services.runtime.backpressure import BURST, BURST_S, LATE_S, PROBE_S, Pressure

#: How far a clock moves between two looks around a probe when the loop is behind.
BEHIND_S = PROBE_S + 2 * LATE_S


class Looks:
    """A monotonic clock that moves by `step_s` at each look; `enough` is set after fifty."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.count = 0
        self.enough = asyncio.Event()

    def __call__(self) -> float:
        self.count += 1
        if self.count == 50:
            self.enough.set()
        return self.count * self.step_s


def burst(now: Looks, worked: Looks, trickle_s: float = 3600) -> Pressure:
    """Pressure in the middle of a burst; `now` must not move further than that takes."""
    pressure = Pressure(trickle_s, now, worked)
    keep_arriving(pressure)
    return pressure


def keep_arriving(pressure: Pressure) -> None:
    """As many messages as make a burst."""
    for _ in range(BURST):
        pressure.arrived()


async def test_work_goes_at_once_while_messages_are_few() -> None:
    pressure = Pressure(now=Looks(0))
    for _ in range(BURST - 1):
        pressure.arrived()
    assert await at_once(pressure)
    pressure.arrived()
    assert not await at_once(pressure)


async def test_work_goes_at_once_when_a_burst_is_over() -> None:
    assert await at_once(burst(Looks(BURST_S / BURST), Looks(0)))


async def test_work_uses_the_time_that_a_burst_leaves() -> None:
    now = Looks(PROBE_S)
    pressure = burst(now, Looks(0))
    feeding = asyncio.create_task(feed(pressure))
    assert not await at_once(pressure)
    await asyncio.gather(*(pressure.ease() for _ in range(3)))
    feeding.cancel()


async def test_work_waits_while_the_loop_is_behind() -> None:
    now = Looks(BEHIND_S)
    await waits(burst(now, Looks(0)), now)


async def test_work_waits_while_the_loop_is_never_idle() -> None:
    now = Looks(PROBE_S)
    await waits(burst(now, Looks(4 * PROBE_S)), now)


async def test_a_burst_without_end_lets_one_through_at_a_time() -> None:
    pressure = burst(Looks(BEHIND_S), Looks(0), trickle_s=BEHIND_S * 4)
    feeding = asyncio.create_task(feed(pressure))
    await asyncio.gather(*(pressure.ease() for _ in range(3)))
    feeding.cancel()


async def waits(pressure: Pressure, now: Looks) -> None:
    """Units do not start while messages go on arriving, and do when they have ended."""
    feeding = asyncio.create_task(feed(pressure))
    waiting = [asyncio.create_task(pressure.ease()) for _ in range(3)]
    await now.enough.wait()
    assert not any(task.done() for task in waiting)
    feeding.cancel()
    await asyncio.gather(*waiting)


async def feed(pressure: Pressure) -> None:
    """Messages without end, at every turn of the loop."""
    while True:
        keep_arriving(pressure)
        await asyncio.sleep(0)


async def at_once(pressure: Pressure) -> bool:
    """Whether a unit starts within one turn of the loop. One that would wait is given up."""
    waiting = asyncio.create_task(pressure.ease())
    await asyncio.sleep(0)
    started = waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return started
