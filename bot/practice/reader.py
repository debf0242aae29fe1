"""Reading a workspace as people see it. The driver in this process and the remote one share these questions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from bot.practice.messages import elements_of, flat_blocks
from bot.practice.model import BOT_USER_ID, ChatMessage, Json, OpenView

Place = str


class Reader(ABC):
    """Questions about what is on the screens. Answers are snapshots: later changes do not touch them."""

    @abstractmethod
    def all_messages(self) -> Iterable[ChatMessage]:
        """Every message, deleted and ephemeral ones too, oldest first."""

    @abstractmethod
    def channel_id(self, which: str) -> str:
        """The id for #name, name or id. LookupError if there is no such channel."""

    @abstractmethod
    def user_id(self, who: str) -> str:
        """The id for a name. LookupError if there is nobody of that name."""

    @abstractmethod
    def dm_id(self, who: str) -> str:
        """The id of a person's direct messages with the app."""

    @abstractmethod
    def view_stack(self, who: str) -> list[OpenView]:
        """The modals on somebody's screen, the top one last."""

    @abstractmethod
    def home(self, who: str) -> OpenView | None:
        """Somebody's home tab, None before it was published."""

    def channel_messages(self, channel: str = "#gpu", *, threads: bool = False) -> list[ChatMessage]:
        """What everybody reads in a channel, oldest first; thread replies only with `threads`."""
        place = self.channel_id(channel)
        return [
            m.copy()
            for m in self.all_messages()
            if m.channel == place
            and not m.deleted
            and m.ephemeral_to is None
            and (threads or m.thread_ts in {None, m.ts})
        ]

    def dm_messages(self, who: str) -> list[ChatMessage]:
        """The direct messages between somebody and the app, thread replies too."""
        place = self.dm_id(who)
        return [m.copy() for m in self.all_messages() if m.channel == place and not m.deleted and not m.ephemeral_to]

    def ephemerals(self, who: str) -> list[ChatMessage]:
        """What the app told only this person, everywhere."""
        return [m for m in self._only_to(who) if m.subtype != "notice"]

    def notices(self, who: str) -> list[ChatMessage]:
        """What the platform told only this person, such as `/gpu failed with the error "operation_timeout".`"""
        return [m for m in self._only_to(who) if m.subtype == "notice"]

    def _only_to(self, who: str) -> Iterator[ChatMessage]:
        reader = self.user_id(who)
        return (m.copy() for m in self.all_messages() if m.ephemeral_to == reader and not m.deleted)

    def thread(self, message: ChatMessage) -> list[ChatMessage]:
        """The replies to a message, oldest first."""
        return [
            m.copy()
            for m in self.all_messages()
            if m.channel == message.channel
            and m.thread_ts == message.ts
            and m.ts != message.ts
            and not m.deleted
            and m.ephemeral_to is None
        ]

    def now(self, message: ChatMessage) -> ChatMessage:
        """The message as it is now. LookupError when it is gone."""
        for found in self.all_messages():
            if found.channel == message.channel and found.ts == message.ts:
                return found.copy()
        raise LookupError(f"there is no message {message.ts} in {message.channel}")

    def view(self, who: str) -> OpenView | None:
        """The modal on top of somebody's screen."""
        stack = self.view_stack(who)
        return stack[-1] if stack else None

    def duplicates(self, channel: str | None = None) -> list[list[ChatMessage]]:
        """Groups of the app's messages that say the same thing at the same place: each should have one member."""
        place = self.channel_id(channel) if channel else None
        groups: dict[str, list[ChatMessage]] = {}
        for m in self.all_messages():
            if m.user == BOT_USER_ID and not m.deleted and place in {None, m.channel}:
                groups.setdefault(_fingerprint(m), []).append(m.copy())
        return [group for group in groups.values() if len(group) > 1]


def _fingerprint(message: ChatMessage) -> str:
    blocks = [without_ids(block) for block in message.blocks]
    place = (message.channel, message.thread_ts, message.ephemeral_to)
    return json.dumps([place, message.text, blocks, message.metadata], sort_keys=True, default=str)


def without_ids(value: Any) -> Any:
    """Blocks without the ids that differ from post to post."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k != "block_id"}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def buttons(thing: ChatMessage | OpenView) -> list[Json]:
    """The buttons of a message or view, in reading order."""
    return [e for block in flat_blocks(thing.blocks) for e in elements_of(block) if e.get("type") == "button"]


def button_texts(thing: ChatMessage | OpenView) -> list[str]:
    """The words on the buttons, in reading order."""
    return [str(button["text"]["text"]) for button in buttons(thing)]


def all_text(thing: ChatMessage | OpenView) -> str:
    """Every word that a person reads, one piece a line: the text, headers, sections, cells, buttons, labels."""
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
