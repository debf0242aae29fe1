"""Open connections and transactions on SQLite and on PostgreSQL.

SQLite: all writes of one process go through one connection, each transaction opens with `BEGIN IMMEDIATE`, and waiting
writers share commits (`sqlite_writer`), where an inbound message may go first. With the driver's defaults a
read-modify-write loses updates without an error, and a deferred transaction dies on `database is locked`.
Reads have connections of their own and see the last commit. PostgreSQL: an ordinary pool; writes are READ COMMITTED,
a read is one snapshot. On both, a read cannot write.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.sql import FromClause
from sqlalchemy.util import LRUCache

from ledger.engine.sqlite_driver import BEGIN_WRITE, Connection
from ledger.engine.sqlite_writer import SharedWriter, closing_in_place
from ledger.kernel.network_guard import transaction_open
from ledger.models import Base

BUSY_TIMEOUT_MS = 15_000
READERS = 4
POOL_SIZE = 8
#: Transactions hold no network call, so one that does nothing for this long belongs to a process that hangs.
IDLE_IN_TRANSACTION_MS = 10_000

PRAGMAS = (
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",  # First, so that the others wait for a process that starts beside us.
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # An acknowledged approval must survive a power cut.
    "PRAGMA foreign_keys=ON",
    "PRAGMA recursive_triggers=ON",  # Otherwise REPLACE deletes rows without firing the append-only triggers.
)


class _Compiled(LRUCache[Any, Any]):
    """Cache compiled SQL statements for all engines of this process.

    SQLAlchemy keeps what it compiled per engine, so the reader and the writer of one file would each compile the same,
    and every further ledger that a process opens would begin again. The key's first part is the engine's dialect; what
    of it decides the text is taken instead.
    """

    def _shared(self, key: Any) -> Any:
        dialect, *rest = key
        return (dialect.name, dialect.driver, getattr(dialect, "server_version_info", None), *rest)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the compiled statement, whichever engine asked for it first."""
        return super().get(self._shared(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._shared(key), value)


#: Room for every statement that the program has, on both databases.
_COMPILED = _Compiled(3000)


class DatabaseUrlError(ValueError):
    """Say that the database URL is not one of the two supported kinds."""


class NestedWrite(RuntimeError):
    """Say that a task opened a second write inside its first; on SQLite it would wait for itself without end."""


class Database:
    """Give sessions of one ledger: `read()` sees one state, `write()` commits at its end or rolls back on an error."""

    def __init__(self, url: str, *, connect: Callable[..., Connection] = Connection) -> None:
        """`connect` opens the connections of a SQLite file; a simulation brings its own, which need no threads."""
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise DatabaseUrlError(
                "the database URL cannot be read; write sqlite+aiosqlite:///path/to/file.db "
                "or postgresql+asyncpg://user:password@host/name"
            ) from error
        self.dialect = parsed.get_backend_name()
        if parsed.drivername not in {"sqlite+aiosqlite", "postgresql+asyncpg"}:
            raise DatabaseUrlError(
                f"the database URL starts with {parsed.drivername!r}; use sqlite+aiosqlite:///path/to/file.db "
                "or postgresql+asyncpg://user:password@host/name"
            )
        if self.dialect == "sqlite" and parsed.database in {None, "", ":memory:"}:
            raise DatabaseUrlError(
                "a ledger in memory is lost with its connection; name a file: sqlite+aiosqlite:///path/to/file.db"
            )
        self.url = parsed
        self._writing: set[asyncio.Task[Any] | None] = set()
        self._shared: SharedWriter | None = None
        if self.dialect == "sqlite":
            self._writer = _sqlite_engine(url, connect, size=1, begin=BEGIN_WRITE)
            self._reader = _sqlite_engine(
                url, connect, size=READERS, begin="BEGIN", pragmas=(*PRAGMAS, "PRAGMA query_only=ON")
            )
            self._shared = SharedWriter(self._writer)
        else:
            # A replica that is paused in the middle of a transaction must not lock its rows for all others without end.
            settings = {"idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS)}
            self._writer = create_async_engine(
                url,
                pool_size=POOL_SIZE,
                max_overflow=POOL_SIZE,
                pool_pre_ping=True,
                connect_args={"server_settings": settings},
                execution_options={"compiled_cache": _COMPILED},
                json_deserializer=_loads,
            )
            self._reader = self._writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._write_session = async_sessionmaker(self._writer, expire_on_commit=False, info={"writes": True})
        self._read_session = async_sessionmaker(self._reader, expire_on_commit=False, autoflush=False)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """Open a session that reads one consistent state and commits nothing."""
        session = self._read_session()
        with transaction_open():
            async with session if self._shared is None else closing_in_place(session):
                yield session

    @asynccontextmanager
    async def write(self, *, first: bool = False) -> AsyncIterator[AsyncSession]:
        """Open a transaction, ahead of others if `first`; commit it at its end. Raises `NestedWrite` inside one."""
        task = asyncio.current_task()
        if task in self._writing:
            raise NestedWrite("this task is writing already; pass its transaction on instead of opening another")
        self._writing.add(task)
        try:
            with transaction_open():
                if self._shared is not None:
                    async with self._shared.transaction(urgent=first) as session:
                        yield session
                else:
                    async with self._write_session.begin() as session:
                        yield session
        finally:
            self._writing.discard(task)

    def insert(self, model: type[Base] | FromClause) -> Any:
        """Return the dialect's own INSERT, which knows ON CONFLICT. Both dialects spell it alike."""
        return dialect_insert(self.dialect, model)

    @property
    def writer(self) -> AsyncEngine:
        """Return the engine that migrations use."""
        return self._writer

    async def reopen(self) -> None:
        """Close the connections that nobody uses at this moment, so that the next ones are opened anew."""
        await self.close()

    async def close(self) -> None:
        """Release every connection."""
        await self._writer.dispose()
        if self._shared is not None:
            await self._reader.dispose()  # On PostgreSQL both are one pool.


def _create_private(path: str) -> None:
    """Create the file with mode 0600 first: SQLite copies the mode to its -wal and -shm files."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _loads(text: str) -> Any:
    """Read a JSON value. Most of those in rows of a fleet are empty, which is seen sooner than a parser begins."""
    if text == "[]":
        return []
    return {} if text == "{}" else json.loads(text)


def _sqlite_engine(
    url: str, connect: Callable[..., Connection], *, size: int, begin: str, pragmas: tuple[str, ...] = PRAGMAS
) -> AsyncEngine:
    path = str(make_url(url).database)

    def opened(*_: Any, **__: Any) -> Connection:
        _create_private(path)  # At first use, so that a disk that takes no file stops the use alone.
        return connect(path, busy_timeout_ms=BUSY_TIMEOUT_MS)

    engine = create_async_engine(
        url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=60,
        connect_args={"async_creator_fn": opened},
        execution_options={"compiled_cache": _COMPILED},
        json_deserializer=_loads,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Any) -> None:
        # The driver has no transaction control of its own, so this one is the only BEGIN.
        if begin == BEGIN_WRITE:
            connection.exec_driver_sql(begin)
        else:
            # A read's BEGIN takes no lock and waits for nothing, and reads are many.
            connection.connection.driver_connection.raw.execute(begin)

    return engine


def insert_for(session: AsyncSession, model: type[Base] | FromClause) -> Any:
    """Return the dialect's INSERT for an open session, into a model's rows or, in bulk, into its table."""
    return dialect_insert(session.get_bind().dialect.name, model)


def dialect_insert(dialect: str, model: type[Base] | FromClause) -> Any:
    """Return a dialect's own INSERT, which knows ON CONFLICT."""
    make: Callable[[Any], Any] = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return make(model)


def may_lock(session: AsyncSession) -> bool:
    """Whether rows can be locked in this session: in a write on PostgreSQL. SQLite has one writer and needs none."""
    return bool(session.info.get("writes")) and session.get_bind().dialect.name == "postgresql"
