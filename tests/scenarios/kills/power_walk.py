"""A walk whose ledger lies on a disk that loses its power with the process, while a program makes API keys."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bot.rules.values.labels import LabelKey
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.queries.audit import Books
from tests.scenarios.kills.failpoints import Arm, Phase
from tests.scenarios.kills.power import Disk, fail
from tests.scenarios.kills.walk import Kill, Walk
from tests.scenarios.processes.processes import Nursery, Served, fork
from tests.support.databases import copy_sqlite
from tests.support.stack import LABEL_KEY, LOOK_S, Town, town

CALLS_APART_S = 0.3
TIMEOUT_S = 5.0


@dataclass
class Program:
    """A caller of the REST API. `kept` are the ids that the API acknowledged."""

    place: Town
    token: str
    kept: set[str] = field(default_factory=set)

    async def call(self) -> None:
        """Make one API key after another, whatever happens to the process."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S, headers=headers) as client:
            number = 0
            while True:
                await asyncio.sleep(CALLS_APART_S)
                if not self.place.bots or not self.place.bot.port:
                    continue
                number += 1
                body = {"name": f"program-{number}", "owner": "operator:ada"}
                with suppress(httpx.HTTPError):
                    answer = await client.post(f"http://127.0.0.1:{self.place.bot.port}/api/v1/keys", json=body)
                    if answer.status_code == 201:
                        self.kept.add(answer.json()["key_id"])


@dataclass
class PowerWalk(Walk):
    """The process stops at its failpoint; then the power fails, the process is killed, and both start again."""

    disk: Disk = field(kw_only=True)
    flushes: bool = field(default=True, kw_only=True)
    failures: int = 0
    program: Program | None = None

    async def play(self) -> None:
        """Walk to the end, and find everything there that was acknowledged to the program."""
        actor, now = Actor(ActorKind.OPERATOR, "ada"), self.place.clock.now()
        new, labels = NewKey("operator:ada", "", ("admin",)), LabelKey("e2e1", bytes.fromhex(LABEL_KEY))
        made = await api_keys.create(self.place.db, labels, new, actor, now)
        self.program = Program(self.place, str(made.data["token"]))
        calling = asyncio.create_task(self.program.call())
        try:
            await super().play()
        finally:
            calling.cancel()
            with suppress(asyncio.CancelledError):
                await calling
        await self._nothing_is_lost(await self.books())

    async def _nothing_is_lost(self, books: Books) -> None:
        """Find everything that Slack, a program or a cloud was told, or was sent, after it was stored."""
        place, program = self.place, self.program
        there = {one.id for one in await api_keys.listing(place.db, place.clock.now())}
        lost = sorted(place.acknowledged - {row.key for row in books.inbox})
        lost += sorted(program.kept - there) if program is not None else []
        lost += [one for one in map(str, place.creates) if not any(row.label in one for row in books.instances)]
        assert not lost, f"the power failed, and lost are {lost}"

    def fork(self) -> Served:
        place = self.place
        ahead_s, dies_at = place.clock.ahead_s, self.arm_path
        return fork(place.nursery, place.environment, place.log, ahead_s, dies_at=dies_at, flushes=self.flushes)

    async def start(self) -> None:
        starting = asyncio.create_task(super().start())
        while not starting.done():
            await asyncio.sleep(LOOK_S)
            if self.place.bots and self.place.bot.is_stopped:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                raise TimeoutError("it stopped before it served")
        starting.result()

    def is_down(self) -> bool:
        return super().is_down() or self.place.bot.is_stopped

    async def bury(self) -> int:
        place = self.place
        async with self._reading:
            # This program's own files are closed first: it must not touch them afterwards.
            url = place.db.url.render_as_string(hide_password=False)
            await place.db.close()
            fail(self.disk.folder)
            self.failures += 1
            place.bot.signal(signal.SIGKILL)
            code = await super().bury()
            self.disk.start_again()
            place.db = Database(url)
            await self._nothing_is_lost(await place.books())
        return code


@asynccontextmanager
async def power_walk(
    disk: Disk,
    migrated: Path,
    folder: Path,
    parent: Nursery,
    cloud: str,
    plan: Mapping[Phase, Kill],
    *,
    flushes: bool = True,
) -> AsyncIterator[PowerWalk]:
    """A walk whose ledger and data lie on the disk."""
    url = copy_sqlite(migrated, disk.folder)
    data = disk.folder / "data"
    data.mkdir(mode=0o700)  # One call, in a folder in memory.
    disk.start_again()
    async with town(url, folder, parent, cloud) as place:
        place.environment = {**place.environment, "GPU_SHOPPER_DATA_DIR": str(data)}
        arm = Arm(folder / "dies-at", signal.SIGSTOP)
        yield PowerWalk(place, plan, arm, folder / "dies-at", disk=disk, flushes=flushes)
