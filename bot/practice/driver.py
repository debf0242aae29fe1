"""Drive a workspace of this process as its people would; the tests act and read through it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from bot.practice.act import Acts
from bot.practice.model import ChatMessage, Json, OpenView
from bot.practice.page_api import PageApi
from bot.practice.reader import WAIT_S, Person, Reader, describe
from bot.practice.workspace import Workspace

T = TypeVar("T")


class Driver(Reader):
    """Drive a workspace: `ws = Driver(workspace, acts)`; `await ws.as_("alice").command("/gpu help")`.

    Use it from the event loop that serves the workspace.
    """

    def __init__(self, workspace: Workspace, acts: Acts) -> None:
        self.workspace = workspace
        self._verbs = PageApi(workspace, acts).verbs

    def as_(self, who: str) -> Person:
        """Return somebody to act as. LookupError for an unknown name."""
        return Person(self, self.workspace.user(who).name)

    async def call(self, verb: str, body: Json) -> Json:
        """Call one verb of the page, as somebody's browser would."""
        return await self._verbs[verb](body)

    async def until(self, look: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """Wait until `look()` is true and return its result."""
        signal = self.workspace.signal
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    seen = signal.version
                    if found := look():
                        return found
                    if signal.closed:
                        raise TimeoutError
                    await signal.wait(seen)
        except TimeoutError:
            raise TimeoutError(f"nothing became true within {timeout_s} s; {describe(self.all_messages())}") from None

    # ── Reader ───────────────────────────────────────────────────────────────────────────────────

    def all_messages(self) -> Iterable[ChatMessage]:
        return list(self.workspace.messages)

    def channel_id(self, which: str) -> str:
        return self.workspace.channel(which).id

    def user_id(self, who: str) -> str:
        return self.workspace.user(who).id

    def dm_id(self, who: str) -> str:
        return self.workspace.dm(self.user_id(who)).id

    def view_stack(self, who: str) -> list[OpenView]:
        return [view.copy() for view in self.workspace.stacks.get(self.user_id(who), [])]

    def home(self, who: str) -> OpenView | None:
        found = self.workspace.homes.get(self.user_id(who))
        return found.copy() if found else None
