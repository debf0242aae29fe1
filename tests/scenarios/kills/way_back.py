"""After a kill of a walk, the older copy of an operator is restored, or the previous release starts and only ends."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx

from bot.rules.values.labels import LabelKey
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.runtime.ends_copy import NAME
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.queries.audit import Books, read_books
from tests.scenarios.kills.failpoints import Phase
from tests.scenarios.processes.processes import fork
from tests.scenarios.processes.way_back import ENDS_ONLY, LATER, backup, restore, set_schema
from tests.support.stack import LABEL_KEY, Town

#: The end watchdog looks every five seconds: so long it has looked once.
LOOKED_S = 6.0
ACCEPTS_S = 0.5
LIMIT_S = 240.0


class Back(StrEnum):
    """How operators go back."""

    RESTORE = "an older copy restored"
    PREVIOUS = "the previous release started"


#: What follows the kill of which phase, walk after walk. A copy is taken as its phase begins.
TURNS = (
    (Back.RESTORE, Phase.EXTEND),
    (Back.PREVIOUS, Phase.APPROVE),
    None,
    (Back.RESTORE, Phase.END),
    (Back.PREVIOUS, Phase.END),
    None,
    (Back.PREVIOUS, Phase.EXTEND),
)


def turns() -> Iterator[tuple[Back, Phase] | None]:
    """Return what follows in one walk after another."""
    return itertools.cycle(TURNS)


@dataclass
class WayBack:
    """What operators do once in a walk, after the process died in `phase`."""

    place: Town
    folder: Path
    what: Back
    phase: Phase
    is_done: bool = False
    #: Whether a copy was restored that operators have not accepted yet.
    is_older: bool = False
    _archive: Path | None = None
    _token: str = ""

    async def begin(self, phase: Phase) -> None:
        """Back the ledger up as its phase begins."""
        if phase is not self.phase or self.what is not Back.RESTORE:
            return
        actor, now = Actor(ActorKind.OPERATOR, "ada"), self.place.clock.now()
        new, labels = NewKey("operator:ada", "", ("admin",)), LabelKey("e2e1", bytes.fromhex(LABEL_KEY))
        self._token = str((await api_keys.create(self.place.db, labels, new, actor, now)).data["token"])
        self._archive = await backup(self.place.environment, self.folder / "safe")

    async def after_death(self, phase: Phase, reading: asyncio.Lock) -> None:
        """Go back, once, before the next process starts. Nobody reads the ledger meanwhile."""
        if self.is_done or phase is not self.phase:
            return
        if self._archive is not None:
            async with reading:
                await self.place.db.close()
                await restore(self.place.environment, self._archive)
                books = await read_books(self.place.db)
            self.place.acknowledged &= {row.key for row in books.inbox}
            self.is_done = self.is_older = True
        elif self.what is Back.PREVIOUS and self._has_copy():
            await self._previous_release()
            self.is_done = True

    def _has_copy(self) -> bool:
        """Whether a process has copied what must end, without which nothing can be due and no start waits."""
        url = self.place.db.url
        is_file = url.get_backend_name() == "sqlite"
        folder = Path(str(url.database)).parent if is_file else Path(self.place.environment["GPU_SHOPPER_DATA_DIR"])
        return (folder / NAME).exists()

    async def accept(self, read: Callable[[], Awaitable[Books]]) -> None:
        """Accept the older ledger, as soon as a process takes it, and again while the ledger does not say so."""
        headers = {"Authorization": f"Bearer {self._token}"}
        async with asyncio.timeout(LIMIT_S), httpx.AsyncClient(trust_env=False, headers=headers) as client:
            while self.is_older:
                await asyncio.sleep(ACCEPTS_S)
                if not self.place.bots or not self.place.bot.port:
                    continue
                with suppress(httpx.HTTPError):
                    await client.post(f"http://127.0.0.1:{self.place.bot.port}/api/v1/recover/accept", json={})
                self.is_older = _count(await read(), EventKind.LEDGER_ACCEPTED) == 0

    async def check(self) -> None:
        """The older ledger was noticed once and accepted once."""
        if self._archive is not None and self.is_done:
            books = await self.place.books()
            assert _count(books, EventKind.LEDGER_OLDER) == _count(books, EventKind.LEDGER_ACCEPTED) == 1

    async def _previous_release(self) -> None:
        """Let a release run for a while that can't use the ledger's schema: it says so, and buys nothing."""
        place, creates = self.place, len(self.place.creates)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        before = await set_schema(place.db, LATER)
        bot = fork(place.nursery, {**place.environment, "GPU_SHOPPER_PORT": str(port)}, place.log, place.clock.ahead_s)
        try:
            await bot.says(f"serving {ENDS_ONLY}")
            await asyncio.sleep(LOOKED_S)
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.get(f"http://127.0.0.1:{port}/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, ENDS_ONLY)
            assert len(place.creates) == creates, "it bought something"
        finally:
            await bot.kill()
            await set_schema(place.db, before)


def _count(books: Books, kind: EventKind) -> int:
    return sum(event.kind == kind for event in books.events)
