"""A running service whose ledger can be copied, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.engine.db import Database
from providers.sandbox.clock import SandboxTiming
from tests.services.recovery.restoring import Copies, Service, service
from tests.support.clock import SteppedClock
from tests.support.matrix import DATABASES
from tests.support.world import world


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A restore is another thing on each database, so these tests run on both."""
    if "copied" in metafunc.fixturenames:
        only = metafunc.config.getoption("--database")
        metafunc.parametrize("copied", (only,) if only else DATABASES, indirect=True)


@pytest.fixture
async def copied(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Copies]]:
    """The URL of a fresh ledger, and the copies that a test takes of it."""
    if request.param == "sqlite":
        copies = Copies(tmp_path)
        yield request.getfixturevalue("sqlite_db_url"), copies
        return
    template = request.getfixturevalue("pg_template")
    async with template.clone() as url:
        copies = Copies(tmp_path, template)
        yield url, copies
        await copies.close()


@pytest.fixture
def copies(copied: tuple[str, Copies]) -> Copies:
    """The copies that a test takes."""
    return copied[1]


@pytest.fixture
async def running(copied: tuple[str, Copies], clock: SteppedClock, tmp_path: Path) -> AsyncIterator[Service]:
    """A service that works on the ledger which is copied."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    db = Database(copied[0])
    async with world(db, clock, sandbox=SandboxTiming.quick()) as w:
        built = await service(w, folder, "first")
        try:
            yield built
        finally:
            for one in {*built.databases, db}:
                await one.close()
