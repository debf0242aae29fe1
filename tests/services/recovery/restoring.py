"""Copies of a world's ledger on both databases, and processes that start with one of them beside what records it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from bot.services.recovery import acceptance
from bot.services.recovery.acceptance import Accept
from bot.services.recovery.detection import check_at_start
from bot.services.runtime import ends_copy
from bot.services.runtime.commands import Reply
from bot.services.runtime.epoch import NAME as EPOCH
from bot.services.runtime.epoch import Epoch
from bot.services.runtime.older_ledger import SUBJECT
from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from tests.services.sessions.watchdog import OPERATORS, Watched
from tests.support.databases import PostgresTemplate, sqlite_url
from tests.support.world import World

ADA = Actor(ActorKind.OPERATOR, "ada")


@dataclass
class Copies:
    """Copies of one ledger. On PostgreSQL a copy is a clone of the database, while nobody is connected to it."""

    folder: Path
    postgres: PostgresTemplate | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _number: count[int] = field(default_factory=count)

    async def take(self, *databases: Database) -> str:
        """Copy the ledger of these connections as it is now; returns the URL of the copy."""
        url = databases[0].url
        if self.postgres is not None:
            for one in databases:
                await one.writer.dispose()
            return await self._stack.enter_async_context(self.postgres.clone(template=str(url.database)))
        copy = self.folder / f"copy-{next(self._number)}.db"
        with closing(sqlite3.connect(str(url.database))) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        copy.chmod(0o600)
        return sqlite_url(copy)

    async def close(self) -> None:
        """Drop the copies."""
        await self._stack.aclose()


@dataclass
class Service:
    """One process on a ledger: its jobs and its end watchdog, with a folder for what they write beside the ledger."""

    w: World
    dog: EndWatchdog
    watched: Watched
    folder: Path

    @property
    def databases(self) -> tuple[Database, Database]:
        return self.w.ctx.db, self.dog.ctx.db

    @property
    def pages(self) -> list[str]:
        """What operators were shown about the ledger's age, in order."""
        return [subject for _, subject, _, _ in self.w.board.shown if subject.startswith(SUBJECT)]

    async def run(self, seconds: float, step_s: float = 15.0) -> None:
        """Let time pass: the jobs and the watchdog take their turns at each step."""
        while seconds > 0:
            self.w.clock.advance(min(step_s, seconds))
            seconds -= step_s
            await self.dog.look()
            await self.dog.probe()
            await self.w.settle(4)

    async def accept(self, *, keeps_approvals: bool = False, unlisted: Sequence[str] = ()) -> Reply:
        """Accept the ledger as an operator."""
        return await acceptance.accept(self.w.ctx, Accept(ADA, keeps_approvals), unlisted)

    async def violations(self) -> list[str]:
        """What must never be, but that the ledger lacks what was sent after it was copied."""
        return [one for one in await self.w.violations() if not one.startswith("intent before instance")]

    async def differences(self) -> list[str]:
        """What `recover` says: how old the ledger is, and each difference."""
        facts = await acceptance.older_facts(self.w.ctx)
        return facts.sentences if facts is not None else []


async def service(w: World, folder: Path, name: str, folders: Sequence[Path] = ()) -> Service:
    """A process that starts on a world's ledger, with its data folder and where its epoch is written besides."""
    w.ctx = replace(w.ctx, epoch=Epoch((folder, *folders), name))
    path = folder / ends_copy.NAME
    await check_at_start(w.ctx, ends_copy.load(path), name)
    watched_ctx = replace(w.ctx, db=Database(w.ctx.db.url.render_as_string(hide_password=False)))
    watched = Watched(w, None, [])  # type: ignore[arg-type] # Set below: each needs the other.
    watched.dog = EndWatchdog(watched_ctx, path, name, watched.say, watched.others, OPERATORS)
    return Service(w, watched.dog, watched, folder)


@asynccontextmanager
async def restarted(
    before: Service, url: str, name: str = "later", folders: Sequence[Path] = (), folder: Path | None = None
) -> AsyncIterator[Service]:
    """Another process that starts with a ledger, in the folder of the one before or in its own."""
    w = before.w.replica(url)
    built = await service(w, folder or before.folder, name, folders)
    try:
        yield built
    finally:
        for one in built.databases:
            await one.close()


def lose_records(folder: Path) -> None:
    """Lose the epoch and the copy of what must end."""
    for name in (EPOCH, ends_copy.NAME):
        (folder / name).unlink(missing_ok=True)
