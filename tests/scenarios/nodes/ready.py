"""What GPU Shopper takes from a request to a machine that is ready, on every SSH cloud's sandbox with real machines.

The agent is the built file, `make agent`. What the sandbox takes to boot is left out.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.agent import BUILT
from tests.scenarios.nodes.conftest import NodeTowns
from tests.scenarios.nodes.test_walks import READY_S, to_ready
from tests.scenarios.processes.processes import Nursery, nursery
from tests.support.databases import copy_sqlite, migrated_sqlite
from tests.support.stack import CALLS

Line = tuple[str, str, str]
ROUNDS = 3


async def measure() -> AsyncIterator[Line]:
    """Yield the median of each cloud, and of all of them."""
    if not BUILT.exists():
        raise SystemExit(f"{BUILT} is missing. Run: make agent")
    everything: list[float] = []
    with nursery() as nurse, tempfile.TemporaryDirectory() as name:
        migrated = migrated_sqlite(Path(name))
        for cloud in CALLS:
            took_s = [await _walk(Path(tempfile.mkdtemp(dir=name)), migrated, nurse, cloud) for _ in range(ROUNDS)]
            everything += took_s
            shown = ", ".join(f"{one:.1f}" for one in sorted(took_s))
            yield f"request to ready at {cloud}, less the boot", f"{statistics.median(took_s):.1f} s", shown
    yield "median of all", f"{statistics.median(everything):.1f} s", f"aim < {READY_S:g} s"


async def _walk(folder: Path, migrated: Path, nurse: Nursery, cloud: str) -> float:
    towns = NodeTowns(copy_sqlite(migrated, folder), folder, nurse, BUILT.absolute())
    async with towns.build(cloud) as here:
        took_s = await to_ready(here)
        await here.town.finish()
        await here.nothing_left()
    return took_s
