"""The end watchdogs of a seed's processes. A seed decides when they look, which is not every five seconds.

A real one would cost most of a seed. These look while it matters: right before a trouble stops a process, and until
what was sent without the ledger is recorded.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from bot.services.runtime import ends_copy
from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.engine.db import Database
from tests.scenarios.simulation.place import Place
from tests.scenarios.simulation.process import Interrupted, Process

WATCHES_S = 60.0
OPERATORS = "C0OPS"


@dataclass
class Watchdogs:
    """Those of every process that looked once."""

    here: Place
    #: What they said to whom, and when.
    said: list[tuple[datetime, str, str]] = field(default_factory=list)
    #: The process that may not use the ledger, while one runs.
    refused: Process | None = None
    _dogs: dict[Process, EndWatchdog] = field(default_factory=dict)
    #: The folders of replicas that have one of their own, by their numbers.
    _folders: dict[int, Path] = field(default_factory=dict)
    _watches: bool = False

    def path(self, number: int) -> Path:
        """Return where a replica's copy of what must end is."""
        return self._folders.get(number, self.here.folder) / ends_copy.NAME

    def part(self, number: int) -> None:
        """Give a replica a data folder of its own from now on, with the copy that is there now."""
        folder = self._folders.setdefault(number, self.here.folder / f"data-{number}")
        folder.mkdir(exist_ok=True)
        ends_copy.save(folder / ends_copy.NAME, ends_copy.load(self.here.folder / ends_copy.NAME))

    def of(self, process: Process, me: str = "") -> EndWatchdog:
        """Return the one of a process; `me` names it among the replicas, else its epoch's name does."""
        if process not in self._dogs:
            ctx = process.life.ctx
            own = replace(ctx, db=Database(self.here.db_url, connect=process.connections))
            path, me = self.path(process.number), me or ctx.epoch.replica
            self._dogs[process] = EndWatchdog(own, path, me, self._say, _no_others, OPERATORS)
        return self._dogs[process]

    async def look(self, process: Process) -> bool:
        """Let it look, write and page. False where the process was killed or paused meanwhile."""
        if process.works:
            with suppress(Interrupted):
                await process.do(_look(self.of(process)))
                return True
        return False

    async def look_of_one(self) -> bool:
        """Let that of any process look. False where no process works."""
        process = next((each for each in self.here.processes if each.works), None)
        return process is not None and await self.look(process)

    async def watch(self) -> None:
        """Let every one look now, and again until no trouble is expected and everything that was sent is recorded."""
        if not self._watches:
            self._watches = True
            await self._watch()

    async def _watch(self) -> None:
        for process in list(self.here.processes):
            await self.look(process)
        paths = {self.path(number) for number in range(len(self.here.machines))}
        self._watches = bool(self.here.expected) or any(ends_copy.load(path).sent for path in paths)
        if self._watches:
            self.here.after(WATCHES_S, self._watch)

    async def _say(self, to: str, text: str) -> bool:
        self.said.append((self.here.now, to, text))
        return True


async def _look(dog: EndWatchdog) -> None:
    await dog.look()
    await dog.probe()
    await dog.watch_writes()


async def _no_others() -> int | None:
    return None
