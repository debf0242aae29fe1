"""Fixtures that every test may use, and which database a test runs on.

A test that takes `db` runs on SQLite. The ledger's own tests, and those marked `both_databases`, run on PostgreSQL too;
with `--all` every test does.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ledger.engine.db import Database
from tests.support import canaries, network
from tests.support.clock import SteppedClock
from tests.support.databases import (
    PostgresTemplate,
    ReusedDatabase,
    copy_sqlite,
    memory_folder,
    migrated_sqlite,
    postgres_template,
)
from tests.support.matrix import (
    DATABASES,
    QUICK_EXAMPLES,
    databases_of,
    everything,
    leave_out,
    ran_before,
    sample_clouds,
)
from tests.support.tables import print_tables
from tests.support.wire import Wire

network.install()
network.share_certificates()
# A command that a test runs in a thread logs to the output that was captured for it, which is closed when it ends. What
# a test's own server logs then is nobody's concern; a wrong call of a logger still fails, because pytest raises it.
logging.raiseExceptions = False
# With a width set, which pytest-xdist does for its workers, commands print lists for people.
os.environ.pop("COLUMNS", None)
# How long an example takes is the machine's doing; a test that hangs is ended by its timeout.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("full"), max_examples=QUICK_EXAMPLES)

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all`: what is slow too, and everything on both databases. `--soak`: that at full size, which takes an hour."""
    parser.addoption(
        "--all", action="store_true", dest="everything", help="slow tests too, and every test on both databases"
    )
    parser.addoption("--rest", action="store_true", help="of all tests, what `make test` did not run before")
    parser.addoption("--database", choices=DATABASES, help="leave out what runs on the other database")
    parser.addoption(
        "--soak", action="store_true", help="full size: every kill on both databases, every cloud, fifty rounds"
    )


def pytest_configure(config: pytest.Config) -> None:
    """No test may make the program say a credential; a test that has no small version is left out without `--soak`."""
    canaries.watch(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # What a shell starts in the background ignores Ctrl-C, and so would the programs for which a test presses it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    Wire.replaced_by_sockets = everything(config)
    settings.load_profile("full" if everything(config) else "quick")
    config.addinivalue_line("markers", "soak: runs with --soak only")
    config.addinivalue_line("markers", "quick: runs without --all too, though it plays a scenario")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What takes many minutes runs when it is asked for."""
    if item.get_closest_marker("soak") is not None and not item.config.getoption("--soak"):
        pytest.skip("runs with --soak only")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What tests made for people to read."""
    if config.getoption("--soak"):
        print_tables(terminalreporter)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a ledger runs on the databases that its place and its marks name."""
    if "db_url" in metafunc.fixturenames:
        metafunc.parametrize("db_url", databases_of(metafunc), indirect=True)


def is_slow(item: pytest.Item) -> bool:
    """Whether a test runs in `make test-all` only: it is marked so, or it plays a whole scenario with its faults."""
    if item.get_closest_marker("quick") is not None:
        return False
    return item.get_closest_marker("slow") is not None or item.path.is_relative_to(HERE / "scenarios")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Above the adapters, a test of many clouds runs on some of them. Tests of processes begin, so none is last."""
    if not everything(config):
        leave_out(config, items, [item for item in items if is_slow(item)])
    if config.getoption("--rest"):
        leave_out(config, items, [item for item in items if not is_slow(item) and ran_before(item)])
    above = (HERE / "services", HERE / "scenarios/faults")
    sample_clouds(config, items, [item for item in items if any(map(item.path.is_relative_to, above))])
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: looking through it for garbage takes a seventh of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file."""
    return migrated_sqlite(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def pg_template() -> Iterator[PostgresTemplate]:
    """A PostgreSQL server with a migrated template; started by the first test that needs it."""
    with postgres_template() as template:
        yield template


@pytest.fixture(scope="session")
def reused_database(pg_template: PostgresTemplate) -> Iterator[ReusedDatabase]:
    """The PostgreSQL database that the tests of this process use in turn."""
    with ReusedDatabase(pg_template) as reused:
        yield reused


@pytest.fixture
def sqlite_db_url(sqlite_template: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh, migrated SQLite file."""
    with memory_folder() as folder:
        yield copy_sqlite(sqlite_template, folder or tmp_path)


@pytest.fixture
async def pg_db_url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of a fresh, migrated PostgreSQL database: the reused one, or a clone for a test with processes."""
    if request.node.get_closest_marker("slow") is None:
        yield request.getfixturevalue("reused_database").empty()
        return
    template: PostgresTemplate = request.getfixturevalue("pg_template")
    async with template.clone() as url:
        yield url


@pytest.fixture
def db_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh, migrated database of each kind that the test runs on."""
    url: str = request.getfixturevalue("sqlite_db_url" if request.param == "sqlite" else "pg_db_url")
    return url


@pytest.fixture
async def db(db_url: str) -> AsyncIterator[Database]:
    """An empty, migrated ledger."""
    database = Database(db_url)
    yield database
    await database.close()


@pytest.fixture
async def sqlite_db(sqlite_db_url: str) -> AsyncIterator[Database]:
    """An empty, migrated ledger on SQLite only: for what only SQLite does, and for slow walks above the ledger."""
    database = Database(sqlite_db_url)
    yield database
    await database.close()


@pytest.fixture
async def pg_db(pg_db_url: str) -> AsyncIterator[Database]:
    """An empty, migrated ledger on PostgreSQL only: for what only PostgreSQL does."""
    database = Database(pg_db_url)
    yield database
    await database.close()


@pytest.fixture
def clock() -> SteppedClock:
    """Virtual time from 2026-03-02 09:00 UTC, a Monday."""
    return SteppedClock()
