"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.scenarios.processes.processes import Nursery, nursery
from tests.support.debian_packages import find
from tests.support.matrix import leave_out, take_turns
from tests.support.script import Play, play
from tests.support.stack import Town, town

HERE = Path(__file__).parent

#: Without a Chromium its tests are left out; `make test` says so in one line.
collect_ignore = [] if find() else ["test_browser.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Walks of real processes take turns at the databases; what takes longest begins first, or is for `--soak`."""
    if not config.getoption("--soak"):
        leave_out(config, items, [item for item in items if item.get_closest_marker("soak_only")])
    take_turns(config, items, [item for item in items if item.path.parent == HERE])
    items.sort(key=lambda item: item.get_closest_marker("soak") is None)


@pytest.fixture(scope="session")
def processes() -> Iterator[Nursery]:
    """Where processes of the bot come from."""
    with nursery() as opened:
        yield opened


@pytest.fixture
async def empty_place(db_url: str, tmp_path: Path, processes: Nursery) -> AsyncIterator[Town]:
    """A town on each database, with requests for another cloud on each, and no process yet."""
    async with town(db_url, tmp_path, processes, "vast" if db_url.startswith("sqlite") else "runpod") as built:
        yield built


@pytest.fixture
async def place(empty_place: Town) -> Town:
    """The same with one process that serves."""
    await empty_place.start()
    return empty_place


@pytest.fixture
async def sqlite_place(sqlite_db_url: str, tmp_path: Path, processes: Nursery) -> AsyncIterator[Town]:
    """The same on SQLite only, for what does not depend on the database."""
    async with town(sqlite_db_url, tmp_path, processes, "vast") as built:
        await built.start()
        yield built


@pytest.fixture
async def shared_place(pg_db_url: str, tmp_path: Path, processes: Nursery) -> AsyncIterator[Town]:
    """A town for several processes at once, whose leases end while the test waits."""
    async with town(pg_db_url, tmp_path, processes, "vast", claim_ttl_s=1.5, create_patience=0.017) as built:
        yield built


@pytest.fixture
async def p() -> AsyncIterator[Play]:
    """The whole product in this process; at the end every invariant must hold."""
    async with play() as playing:
        yield playing
