"""The power fails in each phase of a walk: everything that was acknowledged is there afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.kills.failpoints import FAILPOINTS, Phase
from tests.scenarios.kills.power import Disk, disk, fail, missing
from tests.scenarios.kills.power_walk import power_walk
from tests.scenarios.kills.walk import Kill
from tests.scenarios.processes.processes import nursery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PLAN = {one.phase: Kill(one, 1) for one in reversed(FAILPOINTS)}


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Disk]:
    """A disk whose power can fail."""
    if why := missing():
        pytest.skip(why)
    with disk(tmp_path) as made:
        yield made


async def test_a_power_failure_in_each_phase_loses_nothing_that_was_acknowledged(
    ext4: Disk, sqlite_template: Path, tmp_path: Path
) -> None:
    with nursery() as parent:
        async with power_walk(ext4, sqlite_template, tmp_path, parent, "vast", PLAN) as walk:
            await walk.play()
    assert walk.failures >= 4
    assert walk.program is not None
    assert walk.program.kept
    assert {one.point.phase for one in walk.killed} >= {Phase.ASK, Phase.APPROVE, Phase.EXTEND, Phase.END}


async def test_a_ledger_that_asks_for_no_flush_is_found_out(ext4: Disk, sqlite_template: Path, tmp_path: Path) -> None:
    with nursery() as parent:
        async with power_walk(ext4, sqlite_template, tmp_path, parent, "vast", PLAN, flushes=False) as walk:
            with pytest.raises(AssertionError, match="the power failed, and lost are"):
                await walk.play()


@pytest.mark.parametrize(("synchronous", "kept"), [("FULL", 20), ("OFF", 0)])
def test_the_disk_keeps_what_was_flushed_and_nothing_else(ext4: Disk, synchronous: str, kept: int) -> None:
    path = ext4.folder / "some.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE some (number)")
    made.close()
    ext4.start_again()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute(f"PRAGMA synchronous={synchronous}")
    for number in range(20):
        writer.execute("INSERT INTO some VALUES (?)", (number,))
    fail(ext4.folder)
    with pytest.raises(sqlite3.OperationalError):
        writer.execute("INSERT INTO some VALUES (99)")
    writer.close()
    ext4.start_again()
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT count(*) FROM some").fetchone() == (kept,)
    reader.close()
