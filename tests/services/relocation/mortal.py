"""A process of the service that dies in the middle of its work, and the one that starts after it on the same ledger.

What is killed keeps nothing: the next process has its own connections to the ledger and to the clouds, and nothing of
what the dead one had in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from bot.outbound.checkpoint_stores import Stores
from bot.services.runtime.backpressure import Pressure
from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.context import Hints
from bot.services.runtime.names import KnownNames
from ledger.core.inbox import InboxWriter
from ledger.engine.db import Database
from providers.contract import Provider
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from tests.support.serving import catalog_of
from tests.support.world import World


class Killed(BaseException):
    """The process was killed; no `except Exception` in it may catch this."""


class MortalDatabase(Database):
    """A process's ledger. `dies_in`: at so many transactions from now it is killed, before or after its commit."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.dies_in: int | None = None
        self.after_commit = False
        self.is_dead = False

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """Read, unless the process is dead."""
        self._lives()
        async with super().read() as tx:
            yield tx

    @asynccontextmanager
    async def write(self, *, first: bool = False) -> AsyncIterator[AsyncSession]:
        """Write, and die there when its time has come."""
        self._lives()
        dies = self._counts_down()
        async with super().write(first=first) as tx:
            yield tx
            self._lives()
            if dies and not self.after_commit:
                self._die()
        if dies:
            self._die()

    def _counts_down(self) -> bool:
        if self.dies_in is None:
            return False
        self.dies_in -= 1
        return self.dies_in == 0

    def _lives(self) -> None:
        if self.is_dead:
            raise Killed

    def _die(self) -> None:
        self.is_dead = True
        raise Killed


@dataclass
class Processes:
    """The processes of one world, one after another."""

    w: World
    kills: int = 0
    _opened: list[MortalDatabase] = field(default_factory=list)
    _connected: list[Provider] = field(default_factory=list)
    #: What the world had before the first of them.
    _before: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("clock", "providers", "catalog", "inbox", "hints", "names", "pressure")
        self._before = {name: getattr(self.w.ctx, name) for name in names}

    @property
    def db(self) -> MortalDatabase:
        """The ledger as the process of now has it."""
        assert isinstance(self.w.ctx.db, MortalDatabase)
        return self.w.ctx.db

    def start(self) -> None:
        """Start a process on the same ledger."""
        db = MortalDatabase(self.w.ctx.db.url.render_as_string(hide_password=False))
        self._opened.append(db)
        self._go_on(db)

    def kill(self) -> None:
        """`kill -9`, and start the next one."""
        self.db.is_dead = True
        self.kills += 1
        self.start()

    async def close(self, db: Database) -> None:
        """Let the world go on with the ledger and the clouds of before, and close what the processes had open."""
        opened, self._connected = self._connected, []
        self.w.ctx = replace(self.w.ctx, db=db, **self._before)
        self.w.looked.clear()
        for one in self._opened:
            one.is_dead = True
            await one.close()
        for provider in opened:
            await provider.close()

    def _go_on(self, db: Database) -> None:
        """Go on with nothing of what was in memory: connections, hints, names, and what the clock was compared with."""
        w, old = self.w, self.w.ctx
        clock, pacer = GuardedClock(w.machine), LocalPacer(w.clock, 0)
        providers = {name: REGISTRY[name].connect(each, clock, pacer) for name, each in w.environments.items()}
        self._connected += providers.values()
        stores = old.checkpoints.secrets if isinstance(old.checkpoints, Stores) else ()
        fresh: dict[str, Any] = {
            "hints": Hints(),
            "names": KnownNames(),
            "pressure": Pressure(),
            "catalog": catalog_of(providers, clock, old.timing, db, stores=tuple(stores)),
            "inbox": InboxWriter(db, timedelta(seconds=old.timing.claim_ttl_s)),
        }
        w.ctx = replace(old, db=db, clock=clock, providers=providers, **fresh)
        w.looked.clear()
