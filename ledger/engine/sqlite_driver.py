"""Run SQLite statements without a thread hop for each, as a driver for SQLAlchemy's async dialect.

The stock driver sends every cursor, execute, fetch and close through a queue to a thread and back: three or four turns
of the event loop per statement, all of them while the one write lock is held. Here a statement runs at once on the
loop (tens of microseconds on an indexed ledger), and only what may wait goes to a thread: the COMMIT that flushes to
disk, and a BEGIN IMMEDIATE that finds another process writing.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self, TypeVar

T = TypeVar("T")

BEGIN_WRITE = "BEGIN IMMEDIATE"


class Cursor:
    """Run statements whose calls finish before they return; they are coroutines because the dialect awaits them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor = connection.raw.cursor()

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement. A BEGIN IMMEDIATE that would block the loop waits in the thread instead."""
        if operation == BEGIN_WRITE:
            await self._connection.begin_write(self._cursor)
        else:
            self._cursor.execute(operation, parameters)
        return self

    async def executemany(self, operation: str, parameters: Sequence[Sequence[Any]]) -> Cursor:
        """Run one statement for each set of parameters."""
        self._cursor.executemany(operation, parameters)
        return self

    async def fetchall(self) -> list[Any]:
        """Return every remaining row."""
        return self._cursor.fetchall()

    async def close(self) -> None:
        """Release the statement."""
        self._cursor.close()

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def arraysize(self) -> int:
        return self._cursor.arraysize


class Connection:
    """Hold one connection, used by one task at a time. Opening happens in `__init__`, so awaiting it is free.

    `busy_timeout_ms` is how long BEGIN IMMEDIATE waits for another process before sqlite3.OperationalError.
    """

    def __init__(self, path: str, *, busy_timeout_ms: int) -> None:
        # The thread takes over only while the loop's task waits for it, so two threads never use it at once.
        self.raw = sqlite3.connect(path, check_same_thread=False, isolation_level=None, cached_statements=512)
        self._busy_timeout_ms = busy_timeout_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        #: The dialect asks whether the connection is open through this name.
        self._connection: sqlite3.Connection | None = self.raw

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._opened().__await__()

    async def _opened(self) -> Connection:
        return self

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        return Cursor(self)

    async def begin_write(self, cursor: sqlite3.Cursor) -> None:
        """Take the write lock: at once when it is free, in the thread when another process holds it."""
        self.raw.execute("PRAGMA busy_timeout=0")
        try:
            cursor.execute(BEGIN_WRITE)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            self.raw.execute(f"PRAGMA busy_timeout={self._busy_timeout_ms}")
            await self._in_thread(lambda: cursor.execute(BEGIN_WRITE))
        finally:
            self.raw.execute(f"PRAGMA busy_timeout={self._busy_timeout_ms}")

    async def commit(self) -> None:
        """Commit in the thread, because it waits for the disk.

        Raises sqlite3.OperationalError when there is nothing left to commit: on a full disk or a failed write SQLite
        undoes the whole transaction by itself, and a commit that did nothing must not look like one that did.
        """
        if not self.raw.in_transaction:
            raise sqlite3.OperationalError("SQLite has undone the transaction, so nothing of it was stored")
        await self._in_thread(self.raw.commit)

    async def rollback(self) -> None:
        """Undo the transaction; nothing is flushed, so it needs no thread."""
        if self.raw.in_transaction:
            self.raw.rollback()

    async def create_function(self, *args: Any, **kwargs: Any) -> None:
        """Register a function that SQL may call."""
        self.raw.create_function(*args, **kwargs)

    async def close(self) -> None:
        """Close the file and end the thread."""
        self.stop()

    def stop(self) -> None:
        """Close the connection without a loop, as the pool does when it is thrown away."""
        if self._connection is not None:
            self._connection = None
            self._thread.shutdown(wait=True)
            self.raw.close()

    @property
    def isolation_level(self) -> str | None:
        """Return None always: the engine's own BEGIN is the only one."""
        return None

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run `call` in the thread and wait for it, even when the waiting task is cancelled.

        A commit cannot be taken back half-way, and the connection must not be used while the thread has it.
        """
        running = asyncio.get_running_loop().run_in_executor(self._thread, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            raise
