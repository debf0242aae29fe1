"""Pass chat completions on to the local OpenAI-compatible server, and its answer back as it comes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bot.agent.api.bodies import whole
from bot.agent.api.problems import Refusal
from bot.agent.job_process import content

MOST_BYTES = 32 << 20
DEFAULT_PORT = 8000
#: A model may think for long before its first token; the connection itself is to the same machine.
TIMEOUT = httpx.Timeout(600.0, connect=2.0)
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
        call = self.client.build_request(
            "POST", url, content=await whole(request, MOST_BYTES), headers={"Content-Type": "application/json"}
        )
        try:
            reply = await self.client.send(call, stream=True)
        except httpx.TimeoutException:
            raise Refusal(504, f"The server on port {self.port()} did not answer in time.") from None
        except httpx.HTTPError:
            raise Refusal(
                503, f"No server answers on port {self.port()} of this machine. Start one first.", {"Retry-After": "5"}
            ) from None
        headers = {name: reply.headers[name] for name in _PASSED_ON if name in reply.headers}
        return StreamingResponse(_content(reply), reply.status_code, headers)


async def _content(reply: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in reply.aiter_bytes():
            yield chunk
    finally:
        await reply.aclose()
