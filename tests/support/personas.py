"""What people of a practice workspace read, waited for: a test says in their words what must appear where."""

from __future__ import annotations

from collections.abc import Callable

from bot.practice.driver import Driver
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, button_texts

#: Long enough for a machine that does much else at the same time; a test that passes never waits for it.
STEP_S = 60.0


class Screens:
    """The screens of everybody. Every wait ends with TimeoutError and what is on the screens."""

    def __init__(self, ws: Driver) -> None:
        self._ws = ws

    def decidable(self, channel: str = "#gpu") -> list[ChatMessage]:
        """The messages with an Approve button, oldest first."""
        shown = self._ws.channel_messages(channel)
        return [m for m in shown if any(text.startswith("Approve ") for text in button_texts(m))]

    async def offers(self, count: int = 1) -> ChatMessage:
        """The newest message that can be decided, once there are `count`."""
        await self._ws.until(lambda: len(self.decidable()) >= count, STEP_S)
        return self.decidable()[-1]

    async def shows(self, message: ChatMessage, words: str) -> ChatMessage:
        """A message once its newest version has these words."""
        await self._ws.until(lambda: words in all_text(self._ws.now(message)), STEP_S)
        return self._ws.now(message)

    async def posted(self, words: str, channel: str = "#gpu") -> ChatMessage:
        """A message in a channel with these words."""
        return await self._first(lambda: self._ws.channel_messages(channel), words)

    async def told(self, who: str, words: str, *, after: int = 0) -> ChatMessage:
        """What only one person reads in a channel, the first `after` such messages left out."""
        return await self._first(lambda: self._ws.ephemerals(who)[after:], words)

    async def wrote(self, who: str, words: str) -> ChatMessage:
        """A direct message from the bot to somebody."""
        return await self._first(lambda: self._ws.dm_messages(who), words)

    async def replied(self, message: ChatMessage, words: str) -> ChatMessage:
        """A reply in a message's thread."""
        return await self._first(lambda: self._ws.thread(message), words)

    async def _first(self, read: Callable[[], list[ChatMessage]], words: str) -> ChatMessage:
        found = await self._ws.until(lambda: [m for m in read() if words in all_text(m)], STEP_S)
        return found[0]
