"""Read the bodies of calls, with limits on their size, on how slowly they may come, and on their memory together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request

from bot.agent.api.problems import ApiRefusal

#: A caller must send so many bytes within so many seconds, again and again until its body ends. One byte a minute would
#: keep a connection for ever.
LEAST_BYTES, WINDOW_S = 64 << 10, 60.0
#: What the bodies that are in memory may have together.
MOST_HELD_BYTES = 64 << 20
_held_bytes = 0


class _Patience:
    """Ends the task that waits for a caller."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self.task, self.is_over = task, False

    def end(self) -> None:
        """End it."""
        self.is_over = True
        if self.task is not None:
            self.task.cancel()


async def chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises ApiRefusal (408) for a slow caller, ClientDisconnect when the caller is gone.

    Only the time in which the caller is waited for counts, not the time that this machine's disk takes.
    """
    stream = request.stream().__aiter__()
    loop, patience = asyncio.get_running_loop(), _Patience(asyncio.current_task())
    left_s, came = WINDOW_S, 0
    while True:
        began_s = loop.time()
        # A task for each chunk, as asyncio's own timeout makes it, would cost more than the chunk.
        timer = loop.call_later(left_s, patience.end)
        try:
            chunk = await stream.__anext__()
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            if not patience.is_over:
                raise
            sentence = f"Less than {LEAST_BYTES >> 10} KiB came within {WINDOW_S:.0f} s. Send the rest again."
            raise ApiRefusal(408, sentence) from None
        finally:
            timer.cancel()
        left_s -= loop.time() - began_s
        came += len(chunk)
        if came >= LEAST_BYTES:
            left_s, came = WINDOW_S, 0
        if chunk:
            yield chunk


@asynccontextmanager
async def in_memory(request: Request, most: int) -> AsyncIterator[bytes]:
    """Hold a body of at most so many bytes in memory."""
    global _held_bytes  # noqa: PLW0603 # The memory is the process's, too.
    found = bytearray()
    try:
        try:
            async for chunk in chunks(request):
                found += chunk
                _held_bytes += len(chunk)
                if len(found) > most:
                    raise ApiRefusal(413, f"The body has more than {most >> 10} KiB.")
                if _held_bytes > MOST_HELD_BYTES:
                    sentence = f"Other calls hold {MOST_HELD_BYTES >> 20} MiB now. Send this one again later."
                    raise ApiRefusal(429, sentence, {"Retry-After": "5"})
        except ClientDisconnect:
            raise ApiRefusal(400, "The connection ended before the body did.") from None
        yield bytes(found)
    finally:
        _held_bytes -= len(found)


async def json_object(request: Request, most: int) -> dict[str, Any]:
    """Return a body that must be a JSON object."""
    async with in_memory(request, most) as body:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict):
        raise ApiRefusal(400, 'The body must be a JSON object, such as {"id": "train-1", "command": "start"}.')
    return found
