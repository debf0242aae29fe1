"""A watchdog on a world's ledger, and what keeps that ledger from taking writes."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.models import Instance, Session
from tests.support.world import World

OPERATORS = "C0OPS"


@dataclass
class Watched:
    """A watchdog on a world's ledger with connections of its own, and what it said to whom."""

    w: World
    dog: EndWatchdog
    said: list[tuple[str, str]]
    #: How many other replicas say that they can write; None: none is set up.
    able: int | None = None

    @property
    def pages(self) -> list[str]:
        return [text for to, text in self.said if to == OPERATORS]

    async def say(self, to: str, text: str) -> bool:
        self.said.append((to, text))
        return True

    async def others(self) -> int | None:
        return self.able

    async def session(self) -> Session:
        return (await self.w.books()).sessions[0]

    async def to_the_end(self, after_s: float = 25.0) -> None:
        """Let time pass to so long after the approved end while no job runs."""
        row = await self.session()
        assert row.deadline is not None
        self.w.clock.advance(row.deadline - self.w.clock.now() + timedelta(seconds=after_s))

    async def change(self, **values: Any) -> None:
        """Set columns of the instance."""
        async with self.w.ctx.db.write() as tx:
            row = (await self.w.books()).instances[0]
            await amend(tx, Instance, row.id, **values)

    async def jobs_try(self) -> None:
        """The jobs run once, and fail where they need a write."""
        with suppress(Exception):
            await self.w.tick()

    async def look(self) -> None:
        """Look, and let the cloud carry the order out."""
        await self.dog.look()
        self.w.clock.advance(1)


def url_of(w: World) -> str:
    """The URL of a world's ledger."""
    return w.ctx.db.url.render_as_string(hide_password=False)


@contextmanager
def locked(db: Database) -> Iterator[None]:
    """Another process holds the write lock of the ledger's file."""
    other = sqlite3.connect(str(db.url.database), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def _pragma(watched: Watched, line: str) -> None:
    for db in (watched.w.ctx.db, watched.dog.ctx.db):
        async with db.writer.connect() as connection:
            pooled = await connection.get_raw_connection()
            raw: sqlite3.Connection = pooled.driver_connection.raw  # type: ignore[union-attr] # Our own driver.
            raw.execute(line)  # Outside of any transaction: one that writes cannot begin on a read-only ledger.


class Broken:
    """A ledger that takes no write until `mend`."""

    def __init__(self, watched: Watched, how: str) -> None:
        self._watched, self._how, self._stack = watched, how, ExitStack()
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def begin(self) -> None:
        if self._how == "locked":
            self._stack.enter_context(locked(self._watched.w.ctx.db))
        elif self._how == "read-only":
            await _pragma(self._watched, "PRAGMA query_only=ON")
        else:
            # No file of this process may grow, as on a full disk: the copy beside the data can't be written either.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))

    async def mend(self) -> None:
        self._stack.close()
        if self._how == "read-only":
            await _pragma(self._watched, "PRAGMA query_only=OFF")
        elif self._how == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
