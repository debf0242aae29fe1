"""What was not bought, found out on real machines: each has its sentence, is ended and booked, and is replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.engine.db import Database
from providers.sandbox.machines import Flaw
from providers.sandbox.nodes.process_nodes import ProcessNodes
from tests.providers.sandbox.nodes.machines import marked
from tests.services.instances.test_gpu_checks import VERDICTS, fails
from tests.support.clock import SteppedClock
from tests.support.matrix import clouds_with
from tests.support.wire import RealReach
from tests.support.world import World, checked_world

pytestmark = pytest.mark.slow


@pytest.fixture
async def w(sqlite_db: Database, clock: SteppedClock, tmp_path: Path) -> AsyncIterator[World]:
    """A world whose machines are real, and whose clock jumps."""
    nodes = ProcessNodes(tmp_path / "nodes", waits=True)
    try:
        async with checked_world(sqlite_db, clock, heal=True, processes=nodes) as built:
            assert isinstance(built.ctx.reach, RealReach)
            built.ctx.reach.keys = True
            yield built
    finally:
        await nodes.close()
    assert marked(tmp_path) == []


@pytest.mark.parametrize("flaw", VERDICTS)
async def test_a_failed_delivery_is_named_ended_booked_and_replaced(w: World, flaw: Flaw) -> None:
    clouds = ("vast",) if flaw is Flaw.OLD_DRIVER else clouds_with(ssh=True)
    await fails(w, flaw, clouds[-1 - list(VERDICTS).index(flaw) % len(clouds)])
