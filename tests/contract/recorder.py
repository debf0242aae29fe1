"""Records every call that reaches a sandbox and its answer, so that they can be held against the clouds' documents."""

from __future__ import annotations

from collections import deque

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from providers.sandbox.engine import Engine
from tests.contract.documents import Exchange

#: The most calls that are kept: more than any test makes.
KEPT = 5000


class Recorder:
    """An ASGI application around that of the sandboxes."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine
        self.exchanges: deque[Exchange] = deque(maxlen=KEPT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _, cloud, rest = str(scope["path"]).split("/", 2) if str(scope["path"]).count("/") > 1 else ("", "", "")
        disturbed = bool(self._engine.faults.armed(cloud))
        sent, answered = bytearray(), bytearray()
        status = 0

        async def receiving() -> Message:
            message = await receive()
            sent.extend(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            answered.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, receiving, sending)
        query = scope.get("query_string", b"").decode()
        self.exchanges.append(
            Exchange(cloud, scope["method"], f"/{rest}", query, bytes(sent), status, bytes(answered), disturbed)
        )
