"""Follow-up work steps aside for acknowledgements, and never starves."""

from __future__ import annotations

import asyncio

from bot.services.pressure import Pressure


async def test_work_goes_at_once_while_it_is_quiet() -> None:
    await Pressure(trickle_s=3600).ease()


async def test_work_waits_for_the_end_of_a_burst() -> None:
    pressure = Pressure(trickle_s=3600)
    with pressure.acknowledging(), pressure.acknowledging():
        assert pressure.inbound == 2
        waiting = [asyncio.create_task(pressure.ease()) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting)
    assert pressure.inbound == 0


async def test_a_burst_without_end_lets_some_through() -> None:
    pressure = Pressure(trickle_s=0)
    with pressure.acknowledging():
        await asyncio.gather(*(pressure.ease() for _ in range(3)))


async def test_a_message_that_fails_ends_its_pressure() -> None:
    pressure = Pressure(trickle_s=3600)
    try:
        with pressure.acknowledging():
            raise ValueError
    except ValueError:
        pass
    await pressure.ease()
