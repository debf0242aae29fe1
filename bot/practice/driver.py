"""Driving a workspace of this process, as its people would: the tests' hands and eyes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bot.practice.act import Acts
from bot.practice.model import ActionResult, ChatMessage, OpenView
from bot.practice.reader import Reader
from bot.practice.workspace import Workspace

T = TypeVar("T")
WAIT_S = 10.0


class Driver(Reader):
    """`ws = Driver(workspace, acts)`; `await ws.as_("alice").command("/gpu help")`; `await ws.until(lambda: …)`.

    Use it from the event loop that serves the workspace.
    """

    def __init__(self, workspace: Workspace, acts: Acts) -> None:
        self.workspace = workspace
        self._acts = acts

    def as_(self, who: str) -> Person:
        """Somebody's hands. LookupError for an unknown name."""
        return Person(self, self._acts, self.workspace.user(who).name)

    async def until(self, look: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """Wait until `look()` is true and return what it said; it is asked again after every change.

        Raises TimeoutError, with what is on the screens, after `timeout_s` real seconds.
        """
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

    async def travel(self, seconds: float) -> None:
        """Move the workspace's clock forward."""
        await self.workspace.travel(seconds)

    # ── Reader ───────────────────────────────────────────────────────────────────────────────────

    def all_messages(self) -> Iterable[ChatMessage]:
        """Every message, oldest first."""
        return list(self.workspace.messages)

    def channel_id(self, which: str) -> str:
        """The id of a channel."""
        return self.workspace.channel(which).id

    def user_id(self, who: str) -> str:
        """The id of a person."""
        return self.workspace.user(who).id

    def dm_id(self, who: str) -> str:
        """The id of somebody's direct messages with the app."""
        return self.workspace.dm(self.user_id(who)).id

    def view_stack(self, who: str) -> list[OpenView]:
        """The modals on somebody's screen, the top one last."""
        return [view.copy() for view in self.workspace.stacks.get(self.user_id(who), [])]

    def home(self, who: str) -> OpenView | None:
        """Somebody's home tab."""
        found = self.workspace.homes.get(self.user_id(who))
        return found.copy() if found else None


class Person:
    """One person's hands."""

    def __init__(self, driver: Driver, acts: Acts, name: str) -> None:
        self._driver = driver
        self._acts = acts
        self.name = name

    async def command(self, line: str, channel: str = "#gpu", thread_ts: str | None = None) -> ActionResult:
        """Type a slash command."""
        return await self._acts.command(self.name, line, channel, thread_ts)

    async def say(self, text: str, channel: str = "#gpu", thread_ts: str | None = None) -> ChatMessage:
        """Write a message."""
        return (await self._acts.say(self.name, text, channel, thread_ts)).copy()

    async def click(
        self, thing: ChatMessage | OpenView, what: str, value: Any = None, values: Mapping[str, Any] | None = None
    ) -> ActionResult:
        """Press a button or choose in a menu, on the message or view as this snapshot shows it.

        `what` is an action_id, the words on the button, or its value. A snapshot that is older than the message
        clicks on a screen that has not caught up.
        """
        if isinstance(thing, OpenView):
            return await self._acts.click_in_view(self.name, thing.id, what, value=value, values=values)
        return await self._acts.click(self.name, thing.channel, thing.ts, what, value=value, version=thing.version)

    async def submit(self, view: OpenView, values: Mapping[str, Any] | None = None) -> ActionResult:
        """Fill in a modal (by block_id, action_id or label) and submit it."""
        return await self._acts.submit(self.name, view.id, values)

    async def close(self, view: OpenView, *, everything: bool = False) -> ActionResult:
        """Close a modal."""
        return await self._acts.close(self.name, view.id, everything=everything)

    async def open_home(self) -> ActionResult:
        """Look at the app's home tab."""
        return await self._acts.open_home(self.name)

    async def view(self, timeout_s: float = WAIT_S) -> OpenView:
        """The modal on this person's screen, waited for."""
        found = await self._driver.until(lambda: self._driver.view(self.name), timeout_s)
        if found is None:
            raise TimeoutError(f"{self.name} has no dialog on the screen")
        return found


def describe(messages: Iterable[ChatMessage], kept: int = 5) -> str:
    """The last messages in one line each, for the text of a failure."""
    lines = [
        f"[{m.channel}{' only to ' + m.ephemeral_to if m.ephemeral_to else ''}] {m.user}: {m.text[:160]}"
        for m in messages
    ]
    return "the last messages are:\n" + "\n".join(lines[-kept:]) if lines else "there is no message"
