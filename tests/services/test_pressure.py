"""Follow-up work steps aside for acknowledgements while the loop is behind, and never starves."""

from __future__ import annotations

import asyncio

import pytest

from bot.services.pressure import LATE_S, PROBE_S, QUIET_S, Pressure

#: What two looks at the clock around a probe see when the loop keeps up, and when it is behind.
IN_TIME_S = PROBE_S
BEHIND_S = PROBE_S + 2 * LATE_S


class Looks:
    """A monotonic clock that moves by `step_s` at each look; `enough` is set after thirty."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.count = 0
        self.enough = asyncio.Event()

    def __call__(self) -> float:
        self.count += 1
        if self.count == 30:
            self.enough.set()
        return self.count * self.step_s


async def test_work_goes_at_once_while_no_messages_come() -> None:
    pressure = Pressure(now=Looks(QUIET_S))
    assert await at_once(pressure)
    with pressure.acknowledging():
        assert pressure.inbound == 1
    assert pressure.inbound == 0
    assert await at_once(pressure)


async def test_work_goes_on_while_the_loop_keeps_up_with_the_messages() -> None:
    pressure = Pressure(trickle_s=3600, now=Looks(IN_TIME_S))
    with pressure.acknowledging():
        assert not await at_once(pressure)
        await asyncio.gather(*(pressure.ease() for _ in range(3)))


async def test_work_waits_while_the_loop_is_behind() -> None:
    looks = Looks(BEHIND_S)
    pressure = Pressure(trickle_s=3600, now=looks)
    with pressure.acknowledging():
        waiting = [asyncio.create_task(pressure.ease()) for _ in range(3)]
        await looks.enough.wait()
        assert not any(task.done() for task in waiting)
    # Nothing waits any more, and the next looks find the last message long ago.
    await asyncio.gather(*waiting)


async def test_a_burst_without_end_lets_one_through_at_a_time() -> None:
    pressure = Pressure(trickle_s=BEHIND_S * 4, now=Looks(BEHIND_S))
    with pressure.acknowledging():
        await asyncio.gather(*(pressure.ease() for _ in range(3)))


async def test_a_message_that_fails_ends_its_pressure() -> None:
    pressure = Pressure(trickle_s=3600, now=Looks(QUIET_S))
    with pytest.raises(ValueError, match="broken"), pressure.acknowledging():
        raise ValueError("broken")
    assert await at_once(pressure)


async def at_once(pressure: Pressure) -> bool:
    """Whether a unit starts without a single turn of the loop. One that would wait is given up."""
    waiting = asyncio.create_task(pressure.ease())
    await asyncio.sleep(0)
    started = waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return started
