"""The demonstration's own process tree, driven by a test: real HTTP everywhere, one process, one clock that travels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bot.cli.demo.demo_stack import Playground, playground
from bot.practice.driver import Driver
from bot.practice.model import ChatMessage, OpenView
from bot.practice.reader import all_text
from bot.services.audit import invariants
from ledger.queries.audit import Books, read_books
from tests.support.personas import STEP_S, Screens

SEED = 7
BOOT_S = 0.2
LOOK_S = 0.1
#: A request for the GPU that every cloud always sells.
ASK = '/gpu provision 1x4090 2h for="fine-tune"'


@dataclass(frozen=True, slots=True)
class Play:
    """What runs, what its people read, and what is really so."""

    running: Playground

    @property
    def ws(self) -> Driver:
        """The hands and eyes of the people."""
        return self.running.practice.driver

    @property
    def screens(self) -> Screens:
        """What the people read."""
        return Screens(self.ws)

    async def asked(self, line: str = ASK, who: str = "alice") -> ChatMessage:
        """Type a request and wait for the message with its offers."""
        shown = len(self.screens.decidable())
        outcome = await self.ws.as_(who).command(line)
        assert outcome.ok, outcome
        return await self.screens.offers(shown + 1)

    async def ended(self) -> None:
        """Alice ends her newest session, and is told when it is gone."""
        session = (await self.books()).sessions[-1]
        assert (await self.ws.as_("alice").command(f"/gpu terminate {session.id} now")).ok
        await self.screens.wrote("alice", "* ended.")

    def alive(self) -> list[str]:
        """The names of what really runs at any cloud."""
        return [str(item["name"]) for item in self.running.truth()["instances"] if item["alive"]]

    @property
    def creates(self) -> list[Any]:
        """Every create call that reached a cloud."""
        return list(self.running.truth()["creates"])

    async def books(self) -> Books:
        """The ledger."""
        return await read_books(self.running.ctx.db)

    async def comes_to_rest(self) -> None:
        """Every invariant holds, liveness and the bill included, and nothing is shown twice."""
        found = await self._violations()
        try:
            async with asyncio.timeout(STEP_S):
                while found:
                    await asyncio.sleep(LOOK_S)
                    found = await self._violations()
        except TimeoutError:
            raise AssertionError("\n".join(map(str, found))) from None
        assert self.ws.duplicates() == []

    async def _violations(self) -> list[invariants.Violation]:
        running = self.running
        return await invariants.check(
            running.ctx.db, running.clock, running.truth(), is_settled=True, secrets=running.secrets
        )


@asynccontextmanager
async def play(*, socket_mode: bool = False, boot_s: float = BOOT_S) -> AsyncIterator[Play]:
    """Start everything; afterwards it must come to rest."""
    async with playground(port=0, seed=SEED, boot_s=boot_s, socket_mode=socket_mode) as running:
        playing = Play(running)
        yield playing
        await playing.comes_to_rest()


async def with_all_fields(ws: Driver, who: str) -> OpenView:
    """Wait until the form for a request shows a price, click *More options* and wait for all its fields."""

    def form(said: str) -> OpenView | None:
        view = ws.view(who)
        return view if view is not None and said in all_text(view) else None

    priced = await ws.until(lambda: form("About *$"))
    assert priced is not None
    await ws.as_(who).click(priced, "More options")
    full = await ws.until(lambda: form("Training run"))
    assert full is not None
    return full
