"""Read a workspace as people see it; the driver in this process and the remote one share these questions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from bot.practice.messages import elements_of, flat_blocks
from bot.practice.model import BOT_USER_ID, ActionResult, ChatMessage, Json, OpenView

WAIT_S = 10.0

T = TypeVar("T")


class Reader(ABC):
    """Read what is on the screens. Answers are snapshots: later changes do not touch them."""

    @abstractmethod
    async def call(self, verb: str, body: Json) -> Json:
        """Carry out one verb of the page."""

    @abstractmethod
    async def until(self, look: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """Wait until `look()` is true and return its result; it is called again after every change.

        Raises TimeoutError, with what is on the screens, after `timeout_s` real seconds.
        """

    async def travel(self, seconds: float) -> None:
        """Move the workspace's clock forward."""
        await self.call("travel", {"seconds": seconds})

    @abstractmethod
    def all_messages(self) -> Iterable[ChatMessage]:
        """Return every message, deleted and ephemeral ones too, oldest first."""

    @abstractmethod
    def channel_id(self, which: str) -> str:
        """Return the id for #name, name or id. LookupError if there is no such channel."""

    @abstractmethod
    def user_id(self, who: str) -> str:
        """Return the id for a name. LookupError if nobody has that name."""

    @abstractmethod
    def dm_id(self, who: str) -> str:
        """Return the id of a person's direct messages with the app."""

    @abstractmethod
    def view_stack(self, who: str) -> list[OpenView]:
        """Return the modals on somebody's screen, the top one last."""

    @abstractmethod
    def home(self, who: str) -> OpenView | None:
        """Return somebody's home tab, None before it was published."""

    def channel_messages(self, channel: str = "#gpu", *, threads: bool = False) -> list[ChatMessage]:
        """Return what everybody reads in a channel, oldest first; thread replies only with `threads`."""
        found = self._public(self.channel_id(channel))
        return [m.copy() for m in found if threads or m.thread_ts in {None, m.ts}]

    def dm_messages(self, who: str) -> list[ChatMessage]:
        """Return the direct messages between somebody and the app, thread replies too."""
        return [m.copy() for m in self._public(self.dm_id(who))]

    def ephemerals(self, who: str) -> list[ChatMessage]:
        """Return the app's ephemeral messages to this person, in every channel."""
        return [m for m in self._only_to(who) if m.subtype != "notice"]

    def notices(self, who: str) -> list[ChatMessage]:
        """Return the platform's notices to this person, such as `/gpu failed with the error "operation_timeout".`"""
        return [m for m in self._only_to(who) if m.subtype == "notice"]

    def _public(self, place: str) -> Iterator[ChatMessage]:
        return (m for m in self.all_messages() if m.channel == place and not m.deleted and not m.ephemeral_to)

    def _only_to(self, who: str) -> Iterator[ChatMessage]:
        reader = self.user_id(who)
        return (m.copy() for m in self.all_messages() if m.ephemeral_to == reader and not m.deleted)

    def thread(self, message: ChatMessage) -> list[ChatMessage]:
        """Return the replies to a message, oldest first."""
        found = self._public(message.channel)
        return [m.copy() for m in found if m.thread_ts == message.ts and m.ts != message.ts]

    def now(self, message: ChatMessage) -> ChatMessage:
        """Return the message as it is now. LookupError when it is deleted."""
        for found in self.all_messages():
            if found.channel == message.channel and found.ts == message.ts:
                return found.copy()
        raise LookupError(f"there is no message {message.ts} in {message.channel}")

    def view(self, who: str) -> OpenView | None:
        """Return the modal on top of somebody's screen."""
        stack = self.view_stack(who)
        return stack[-1] if stack else None

    def duplicates(self, channel: str | None = None) -> list[list[ChatMessage]]:
        """Group the app's messages that say the same at the same place: each group should have one member."""
        place = self.channel_id(channel) if channel else None
        groups: dict[str, list[ChatMessage]] = {}
        for m in self.all_messages():
            if m.user == BOT_USER_ID and not m.deleted and place in {None, m.channel}:
                groups.setdefault(_fingerprint(m), []).append(m.copy())
        return [group for group in groups.values() if len(group) > 1]


class Person:
    """Act as one person, through the verbs of a driver."""

    def __init__(self, driver: Reader, name: str) -> None:
        self._driver = driver
        self.name = name

    async def _do(self, verb: str, **body: Any) -> ActionResult:
        return ActionResult.from_state(await self._driver.call(verb, {"as": self.name, **body}))

    async def command(self, line: str, channel: str = "#gpu", thread_ts: str | None = None) -> ActionResult:
        """Type a slash command."""
        return await self._do("command", text=line, channel=channel, thread_ts=thread_ts)

    async def say(self, text: str, channel: str = "#gpu", thread_ts: str | None = None) -> ChatMessage:
        """Write a message."""
        body = {"as": self.name, "text": text, "channel": channel, "thread_ts": thread_ts}
        return ChatMessage.from_state((await self._driver.call("say", body))["message"]).copy()

    async def click(
        self, thing: ChatMessage | OpenView, what: str, value: Any = None, values: Mapping[str, Any] | None = None
    ) -> ActionResult:
        """Press a button or choose in a menu, on the message or view as this snapshot shows it.

        `what` is an action_id, the words on the button, or its value. A snapshot that is older than the message
        clicks on a screen that is not up to date.
        """
        if isinstance(thing, OpenView):
            return await self._do("view_click", view_id=thing.id, what=what, value=value, values=values)
        return await self._do(
            "click", channel=thing.channel, ts=thing.ts, what=what, value=value, version=thing.version
        )

    async def submit(self, view: OpenView, values: Mapping[str, Any] | None = None) -> ActionResult:
        """Fill in a modal (by block_id, action_id or label) and submit it."""
        return await self._do("submit", view_id=view.id, values=values)

    async def close(self, view: OpenView, *, everything: bool = False) -> ActionResult:
        """Close a modal."""
        return await self._do("close", view_id=view.id, everything=everything)

    async def open_home(self) -> ActionResult:
        """Open the app's home tab."""
        return await self._do("home")

    async def view(self, timeout_s: float = WAIT_S) -> OpenView:
        """Wait for the modal on this person's screen."""
        found = await self._driver.until(lambda: self._driver.view(self.name), timeout_s)
        if found is None:
            raise TimeoutError(f"{self.name} has no dialog on the screen")
        return found


def describe(messages: Iterable[ChatMessage], kept: int = 5) -> str:
    """Describe the last messages in one line each, for the text of a failure."""
    lines = [
        f"[{m.channel}{' only to ' + m.ephemeral_to if m.ephemeral_to else ''}] {m.user}: {m.text[:160]}"
        for m in messages
    ]
    return "the last messages are:\n" + "\n".join(lines[-kept:]) if lines else "there is no message"


def _fingerprint(message: ChatMessage) -> str:
    blocks = [without_ids(block) for block in message.blocks]
    place = (message.channel, message.thread_ts, message.ephemeral_to)
    return json.dumps([place, message.text, blocks, message.metadata], sort_keys=True, default=str)


def without_ids(value: Any) -> Any:
    """Return blocks without the ids that differ from post to post."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k != "block_id"}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def buttons(thing: ChatMessage | OpenView) -> list[Json]:
    """List the buttons of a message or view, in reading order."""
    return [e for block in flat_blocks(thing.blocks) for e in elements_of(block) if e.get("type") == "button"]


def button_texts(thing: ChatMessage | OpenView) -> list[str]:
    """List the words on the buttons, in reading order."""
    return [str(button["text"]["text"]) for button in buttons(thing)]


def all_text(thing: ChatMessage | OpenView) -> str:
    """Return every word that a person reads, one piece a line: text, headers, sections, cells, buttons, labels."""
    pieces: list[str] = [thing.text] if isinstance(thing, ChatMessage) else [thing.title]
    _collect(thing.blocks, pieces)
    return "\n".join(piece for piece in pieces if piece)


def _collect(value: Any, pieces: list[str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"text", "caption", "title", "label", "alt_text"} and isinstance(item, str):
                pieces.append(item)
            elif key not in {"value", "block_id", "action_id", "type"}:
                _collect(item, pieces)
    elif isinstance(value, list):
        for item in value:
            _collect(item, pieces)
