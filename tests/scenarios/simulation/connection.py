"""SQLite without threads: commits happen in place, and a killed process's files are closed as a kernel does."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from ledger.engine.sqlite_driver import BEGIN_WRITE, Connection

#: Turns of the loop in which another process ends its transaction.
TURNS_MAX = 20_000


class Connections:
    """All connections of one process, to be opened by a `Database`."""

    def __init__(self) -> None:
        self.open: list[InlineConnection] = []
        self.is_cut = False

    def __call__(self, path: str, *, busy_timeout_ms: int) -> InlineConnection:
        """Open one more. A killed process opens none: its tasks go on for a few steps, until they are cancelled."""
        if self.is_cut:
            raise sqlite3.OperationalError("the process is dead")
        made = InlineConnection(path, busy_timeout_ms=busy_timeout_ms)
        self.open.append(made)
        return made

    @property
    def writing(self) -> bool:
        """Whether one of them holds the write lock."""
        return any(one.writes for one in self.open)

    def cut(self) -> None:
        """Close all of them now; what was not committed is lost."""
        self.is_cut = True
        for one in self.open:
            one.writes = False
            one.raw.close()


class InlineConnection(Connection):
    """One connection; whoever waits for the write lock lets the others run."""

    def __init__(self, path: str, *, busy_timeout_ms: int) -> None:
        super().__init__(path, busy_timeout_ms=busy_timeout_ms)
        self.writes = False

    async def begin_write(self, cursor: sqlite3.Cursor) -> None:
        """Take the write lock as soon as it is free."""
        self.raw.execute("PRAGMA busy_timeout=0")
        for _ in range(TURNS_MAX):
            try:
                cursor.execute(BEGIN_WRITE)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                await asyncio.sleep(0)
            else:
                self.writes = True
                return
        raise sqlite3.OperationalError("database is locked")

    async def commit(self) -> None:
        """Commit. A process may be killed right before, and right after."""
        await asyncio.sleep(0)
        if not self.raw.in_transaction:
            raise sqlite3.OperationalError("SQLite has undone the transaction, so nothing of it was stored")
        self.raw.commit()
        self.writes = False
        await asyncio.sleep(0)

    async def rollback(self) -> None:
        """Undo the transaction."""
        self.writes = False
        await super().rollback()

    def stop(self) -> None:
        """Close it, as the pool does."""
        self.writes = False
        super().stop()

    async def _in_thread(self, call: Any) -> Any:
        return call()
