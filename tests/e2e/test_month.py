"""Thirty days of everything: five clouds, forty sessions a day, faults and restarts; `--soak` runs it at full size."""

from __future__ import annotations

import cProfile
import logging
import os
import pstats
import time
from datetime import timedelta

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.databases import copy_sqlite
from tests.e2e.month.faults import Injector
from tests.e2e.month.people import People
from tests.e2e.month.shares import SHARE
from tests.e2e.month.verdict import judge, table
from tests.e2e.month.town import month


@pytest.fixture
def quick_db_url(sqlite_template: Path) -> Iterator[str]:
    """A ledger in memory where the machine has such a folder: what is on no disk is flushed to none."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield copy_sqlite(sqlite_template, Path(folder))


async def test_a_month_of_faults(quick_db_url: str) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger('httpx').setLevel(logging.ERROR)
    days = int(os.environ.get("DAYS", "1"))
    t, w = time.process_time(), time.time()
    prof = cProfile.Profile(time.process_time)
    if os.environ.get("PROF"):
        prof.enable()
    async with month(quick_db_url, int(os.environ.get("SEED", "7"))) as town:
        injector = Injector(town)
        people = People(town, injector)
        town.board.on_shown = people.read
        injector.draw_rules()
        start = town.now
        for day in range(days):
            morning = start + timedelta(days=day)
            people.day(morning, tuple(SHARE), 40)
            injector.day(morning)
            await town.run(morning + timedelta(days=1))
            print("day", day, "CPU", time.process_time() - t, "wall", time.time() - w, "turns", town.turns, flush=True)
        injector.heal()
        await town.run(town.now + timedelta(hours=20))
        prof.disable()
        print("CPU", time.process_time() - t, "wall", time.time() - w, "turns", town.turns)
        if os.environ.get("PROF"):
            pstats.Stats(prof).sort_stats("cumtime").print_stats(70)
        verdict = await judge(town, people, injector)
        print(table(verdict, town, injector))
        print("\n".join(verdict.broken))
