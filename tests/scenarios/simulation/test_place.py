"""Machines whose clocks are wrong: nobody believes them at a start, and none is left when the trouble ends."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError, SAWarning

from bot.services.runtime.clock_guard import approved_now
from tests.scenarios.simulation.loop import SimulatedClock, VirtualLoop
from tests.scenarios.simulation.place import place
from tests.support.clock import MachineClock
from tests.support.databases import copy_sqlite

pytestmark = pytest.mark.usefixtures("cleaned_up")


@pytest.fixture
def cleaned_up() -> Iterator[None]:
    """Collect the connections that a killed process gave nobody back: a later test would be warned of them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        gc.collect()


HOUR = timedelta(hours=1)


@pytest.mark.quick
def test_a_process_believes_no_clock_at_its_start_and_the_end_of_the_trouble_rights_that_of_a_dead_one(
    sqlite_template: Path, tmp_path: Path
) -> None:
    clock = SimulatedClock()

    async def watched() -> tuple[MachineClock, object]:
        async with place(copy_sqlite(sqlite_template, tmp_path), 140, clock) as here:
            dead = here.processes.pop()
            dead.machine.off = HOUR
            dead.cut()
            await dead.bury()
            again = here.begin(dead.number, dead.machine)
            here.calm()
            again.cut()
            await again.bury()
            return dead.machine, approved_now(again.life.clock)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        machine, believed = runner.run(watched())
    assert believed is None
    assert machine.off == timedelta()


@pytest.mark.quick
def test_what_a_killed_process_still_does_opens_no_connection(sqlite_template: Path, tmp_path: Path) -> None:
    clock = SimulatedClock()

    async def killed() -> None:
        async with place(copy_sqlite(sqlite_template, tmp_path), 140, clock) as here:
            dead = here.processes[0]
            dead.cut()
            with pytest.raises(OperationalError, match="dead"):
                async with dead.life.ctx.db.write():
                    pass
            async with here.begin(dead.number, dead.machine).life.ctx.db.write():
                pass

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(killed())
