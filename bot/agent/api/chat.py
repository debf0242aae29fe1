"""Pass chat completions on to the local OpenAI-compatible server, and its answer back as it comes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bot.agent.api.bodies import whole
from bot.agent.api.problems import ApiRefusal
from bot.agent.job_process import content

MOST_BYTES = 32 << 20
DEFAULT_PORT = 8000
#: A model may think for long before its first token; the connection itself is to the same machine.
TIMEOUT = httpx.Timeout(600.0, connect=2.0)
#: Compressed chunks would come late.
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_PASSED_ON = ("content-type", "retry-after", "x-request-id")


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
    # Its only calls go to this machine without TLS, so no certificates are loaded.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(verify=context, timeout=TIMEOUT, limits=limits, trust_env=False, follow_redirects=False)


@dataclass
class Chat:
    """The proxy; `folder` is the agent's, where `serve.json` names the server's port."""

    folder: Path
    client: httpx.AsyncClient = field(default_factory=_client)

    def port(self) -> int:
        """Return the port of the local server."""
        try:
            port = json.loads(content(self.folder / "serve.json", 4096))["port"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return DEFAULT_PORT
        return port if isinstance(port, int) and 0 < port < 65536 else DEFAULT_PORT

    async def pass_on(self, request: Request) -> Response:
        """`POST …/llm/chat`: the body and the answer are those of OpenAI's /v1/chat/completions."""
        url = f"http://127.0.0.1:{self.port()}/v1/chat/completions"
        call = self.client.build_request("POST", url, content=await whole(request, MOST_BYTES), headers=_HEADERS)
        try:
            reply = await _unless_left(request, self.client.send(call, stream=True))
        except httpx.TimeoutException:
            raise ApiRefusal(504, f"The server on port {self.port()} did not answer in time.") from None
        except httpx.HTTPError:
            raise ApiRefusal(
                503, f"No server answers on port {self.port()} of this machine. Start one first.", {"Retry-After": "5"}
            ) from None
        headers = {name: reply.headers[name] for name in _PASSED_ON if name in reply.headers}
        # An error of the local server is none of this API: a caller that retries should know which one it was.
        status = 502 if reply.status_code == 500 else reply.status_code
        return StreamingResponse(_content(reply), status, headers)


async def _unless_left(request: Request, sending: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
    """Wait for the answer's head, and end the work for a caller who leaves meanwhile."""
    reply, left = asyncio.create_task(sending), asyncio.create_task(_left(request))
    try:
        await asyncio.wait({reply, left}, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            raise ApiRefusal(400, "The caller left before the answer came.")
        return await reply
    finally:
        left.cancel()
        reply.cancel()  # It does nothing where the answer came.


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _content(reply: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in reply.aiter_bytes():
            yield chunk
    finally:
        await reply.aclose()
