"""Pass chat completions on to the local OpenAI-compatible server, and its answer back as it comes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bot.agent.api.bodies import in_memory
from bot.agent.api.local_calls import Answer, LocalCalls, NoServer, TooSlow
from bot.agent.api.problems import ApiRefusal
from bot.agent.job_process import content

MOST_BYTES = 32 << 20
DEFAULT_PORT = 8000
PATH: Final = "/v1/chat/completions"
#: Compressed chunks would come late.
_HEADERS = {"Content-Type": "application/json", "Accept": "*/*", "Accept-Encoding": "identity"}
_PASSED_ON = ("content-type", "content-length", "retry-after", "x-request-id")


@dataclass
class Chat:
    """The proxy; `folder` is the agent's, where `serve.json` names the server's port."""

    folder: Path
    calls: LocalCalls = field(default_factory=LocalCalls)

    def port(self) -> int:
        """Return the port of the local server."""
        try:
            port = json.loads(content(self.folder / "serve.json", 4096))["port"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return DEFAULT_PORT
        return port if isinstance(port, int) and 0 < port < 65536 else DEFAULT_PORT

    async def pass_on(self, request: Request) -> Response:
        """`POST …/llm/chat`: the body and the answer are those of OpenAI's /v1/chat/completions."""
        port = self.port()
        async with in_memory(request, MOST_BYTES) as body:
            caller = WaitingCaller(request)
            try:
                answer = await self.calls.post(port, PATH, body, _HEADERS)
            except TooSlow:
                caller.forget()
                raise ApiRefusal(504, f"The server on port {port} did not answer in time.") from None
            except NoServer:
                caller.forget()
                raise ApiRefusal(
                    503, f"No server answers on port {port} of this machine. Start one first.", {"Retry-After": "5"}
                ) from None
            except BaseException:
                caller.forget()
                if caller.has_left:
                    raise ApiRefusal(400, "The caller left before the answer came.") from None
                raise
        return PassedOn(answer, caller)


class WaitingCaller:
    """Ends this call's task when its caller leaves. One task watches; the work itself needs none of its own."""

    def __init__(self, request: Request) -> None:
        self.has_left = False
        self._task = asyncio.create_task(self._watch(request, asyncio.current_task()))

    def forget(self) -> None:
        """Watch no more."""
        self._task.cancel()

    async def _watch(self, request: Request, work: asyncio.Task[Any] | None) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        if work is not None:
            work.cancel()


class PassedOn(Response):
    """The answer of the local server, a piece at a time; the work ends for a caller who leaves."""

    def __init__(self, answer: Answer, caller: WaitingCaller) -> None:
        headers = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
        # An error of the local server is none of this API: a caller that retries should know which one it was.
        super().__init__(None, 502 if answer.status == 500 else answer.status)
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._answer, self._caller = answer, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in self._answer.pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._caller.forget()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not self._caller.has_left:
                raise
        finally:
            self._caller.forget()
            self._answer.close()
