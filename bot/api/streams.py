"""Count the answers that are sent as streams, so that one key cannot keep many of them open."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bot.api.problems import ProblemRaised
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply

MOST_STREAMS = 4


def count_one(streams: Counter[str], key_id: str) -> None:
    """Count one more stream of a key before anything is awaited, since calls at the same moment would all find room.

    Raises `ProblemRaised` for one too many.
    """
    if streams[key_id] >= MOST_STREAMS:
        sentence = f"This key has {MOST_STREAMS} streams already; close one first."
        raise ProblemRaised(Reply(False, ReplyCode.TOO_MANY_STREAMS, sentence))
    streams[key_id] += 1


class CountedStream(StreamingResponse):
    """A stream that is counted for its key until it ends, also when its caller went away before it began."""

    def __init__(
        self,
        streams: Counter[str],
        key_id: str,
        lines: AsyncIterator[str] | Iterator[str],
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(lines, media_type=media_type, headers=headers)
        self._streams = streams
        self._key_id = key_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, then count it no more."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams[self._key_id] -= 1
