"""Read the bodies of calls, with a limit on their size and on how slowly they may come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from bot.agent.api.problems import ApiRefusal

#: A caller that sends nothing for so long has gone.
SILENCE_S = 60.0


async def chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises ApiRefusal (408) after a silence, ClientDisconnect when the caller is gone."""
    stream = request.stream().__aiter__()
    while True:
        try:
            chunk = await asyncio.wait_for(stream.__anext__(), SILENCE_S)
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            raise ApiRefusal(408, f"Nothing came for {SILENCE_S:.0f} s. Send the rest of the body again.") from None
        if chunk:
            yield chunk


async def whole(request: Request, most: int) -> bytes:
    """Return a body of at most so many bytes."""
    found = bytearray()
    try:
        async for chunk in chunks(request):
            found += chunk
            if len(found) > most:
                raise ApiRefusal(413, f"The body has more than {most >> 10} KiB.")
    except ClientDisconnect:
        raise ApiRefusal(400, "The connection ended before the body did.") from None
    return bytes(found)


async def json_object(request: Request, most: int) -> dict[str, Any]:
    """Return a body that must be a JSON object."""
    try:
        found = json.loads(await whole(request, most))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ApiRefusal(400, 'The body must be a JSON object, such as {"id": "train-1", "command": "start"}.')
    return found
