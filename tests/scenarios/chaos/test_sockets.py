"""Every envelope of Socket Mode meets a fault: nothing that was acknowledged is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.chaos.machine import Machine
from tests.scenarios.chaos.people import People
from tests.scenarios.chaos.place import place
from tests.scenarios.chaos.sockets import SocketFault
from tests.scenarios.chaos.verdict import judge

pytestmark = pytest.mark.timeout(300)
#: Decided by then, and after that nobody asks any more.
REQUESTS = 3
LOOK_S = 0.5


async def test_a_fault_of_every_envelope_loses_nothing_and_does_nothing_twice(
    sqlite_db_url: str, tmp_path: Path
) -> None:
    random = Random(7)
    here = Machine(tmp_path, has_disk=False, has_names=False)
    async with place(sqlite_db_url, tmp_path, 1, random, here, by_sockets=True) as built:
        assert built.sockets is not None
        built.proxy.rate, built.sockets.rate = 0.0, 1.0
        people = People(built, random, 300.0)
        living = asyncio.create_task(people.live())
        while len(built.clicked_s) < REQUESTS:  # Another process's ledger tells nobody.
            await asyncio.sleep(LOOK_S)
            await built.sockets.disturb()
        people.is_closing, built.sockets.rate = True, 0.0
        verdict = await judge(built.db, built.evidence())
        while not verdict.creates or any("never processed" in line for line in verdict.broken):
            await asyncio.sleep(LOOK_S)
            verdict = await judge(built.db, built.evidence())
        living.cancel()
    # The machines still run, and their ends are another test's.
    assert [line for line in verdict.broken if line.startswith(("double", "spent")) or "lost" in line] == []
    assert verdict.creates
    assert {*built.counts} >= {SocketFault.REPEATED, SocketFault.ACK_LOST, SocketFault.CUT_OVER_ENVELOPE}
