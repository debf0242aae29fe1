"""Check whose key a call has, how often it comes and how large it is, before any route is looked for.

What fails here says nothing about what lies behind: an unknown path, a bad body and somebody else's session all answer
401 to whoever has no key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from bot.api.dependencies import NODE, PRINCIPAL, Dependencies
from bot.api.limits import Allowance, RateLimiter, SharedLimiter
from bot.api.problems import broken, problem
from bot.rules.values.reply_code import ReplyCode
from bot.services.access.api_keys import Principal, authenticate
from bot.services.nodes.checkins import STRANGE
from bot.services.nodes.enrollment import SHAPE
from bot.services.runtime.commands import Reply

#: What only callers with a key may ask for.
GUARDED = ("/api/", "/metrics")
#: What only nodes may ask for, each with its own token.
AGENT = "/agent/"
#: A check-in is short.
AGENT_BYTES = 16 * 1024
LONGEST_HEADER = 512
SERVER_ERROR = 500

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UNAUTHENTICATED = Reply(
    False,
    ReplyCode.UNAUTHENTICATED,
    "This needs a working API key: Authorization: Bearer gpuk_…; gpu-shopper keys create makes one.",
)
CHALLENGE = {"WWW-Authenticate": "Bearer"}


class AuthMiddleware:
    """ASGI: lets a call pass to `app` with its principal, or answers it. What is not guarded passes as it is."""

    def __init__(self, app: App, desk: Dependencies) -> None:
        self._app = app
        self._desk = desk
        self._calls = RateLimiter(desk.ctx.clock, desk.settings.calls_per_minute)
        # On SQLite there is one process that serves, so there is nobody to share with.
        self._shared = (
            SharedLimiter(desk.ctx.db, desk.ctx.clock, desk.settings.calls_per_minute)
            if desk.ctx.db.dialect == "postgresql"
            else None
        )
        self._wrong = RateLimiter(desk.ctx.clock, desk.settings.wrong_keys_per_minute)
        self._nodes = RateLimiter(desk.ctx.clock, desk.settings.checkins_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; never raises for what a caller sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        watched = _Watched(send)
        try:
            if scope["path"].startswith(GUARDED):
                await self._api(scope, receive, watched)
            elif scope["path"].startswith(AGENT):
                await self._agent(scope, receive, watched)
            else:
                await self._app(scope, receive, watched)
        except Exception as error:
            # The framework has answered it, or it came before the framework; half an answer must end the connection.
            if watched.status == SERVER_ERROR:
                return
            if watched.started:
                raise
            await broken(scope, error)(scope, receive, watched)

    async def _api(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        who = await self._principal(scope)
        if who is None:
            await self._strange(scope)(scope, receive, send)
            return
        allowance = await self._shared.take(who.key_id) if self._shared else self._calls.take(who.key_id)
        send.headers = allowance.headers
        if not allowance.allowed:
            await problem(_too_often(allowance))(scope, receive, send)
            return
        scope.setdefault("state", {})[PRINCIPAL] = who
        await self._app(scope, _capped(receive, self._desk.settings.body_bytes), send)

    async def _agent(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        token = _bearer(scope)
        if token is None or not SHAPE.fullmatch(token):
            await problem(STRANGE, headers=CHALLENGE)(scope, receive, send)
            return
        allowance = self._nodes.take(token)
        send.headers = allowance.headers
        if not allowance.allowed:
            await problem(_too_often(allowance))(scope, receive, send)
            return
        scope.setdefault("state", {})[NODE] = token
        await self._app(scope, _capped(receive, AGENT_BYTES), send)

    def _strange(self, scope: Scope) -> Any:
        """The answer to whoever has no working key. Guesses are counted per address, and only guesses: behind a load
        balancer everybody has the same address, and nobody's guesses may keep others out."""
        if _said(scope):
            allowance = self._wrong.take(str((scope.get("client") or ("",))[0]))
            if not allowance.allowed:
                sentence = f"Too many calls with a wrong key; try again in {allowance.retry_after_s} s."
                return problem(Reply(False, ReplyCode.RATE_LIMITED, sentence), headers=allowance.headers)
        return problem(UNAUTHENTICATED, headers=CHALLENGE)

    async def _principal(self, scope: Scope) -> Principal | None:
        token, ctx = _bearer(scope), self._desk.ctx
        return None if token is None else await authenticate(ctx.db, ctx.labels, token, ctx.clock.now())


def _bearer(scope: Scope) -> str | None:
    said = _said(scope)
    if len(said) != 1 or len(said[0]) > LONGEST_HEADER:
        return None
    kind, _, token = said[0].decode("latin-1").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _said(scope: Scope) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == b"authorization"]


def _too_often(allowance: Allowance) -> Reply:
    sentence = f"At most {allowance.limit} calls a minute; try again in {allowance.retry_after_s} s."
    return Reply(False, ReplyCode.RATE_LIMITED, sentence)


def _capped(receive: Receive, most: int) -> Receive:
    """`receive` that stops reading a body that is too long."""
    read = 0

    async def capped() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > most:
            raise HTTPException(413, f"A body has at most {most // 1024} KiB.")
        return message

    return capped


class _Watched:
    """`send` that knows whether an answer has begun, and adds `headers` to it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __call__(self, message: Message) -> None:
        """Pass one message on."""
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            extra = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **self.headers}
            given = {name.lower() for name, _ in message.get("headers", ())}
            added = [(n.lower().encode(), v.encode()) for n, v in extra.items() if n.lower().encode() not in given]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await self._send(message)
