"""Check the API key, the rate limit and the body size of a call before any route is looked for.

A failure here discloses nothing about the routes: without a key an unknown path, a bad body and somebody else's
session all answer 401.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.api.dependencies import NODE, PRINCIPAL, Dependencies
from bot.api.limits import Allowance, RateLimiter, SharedLimiter
from bot.api.problems import broken, problem
from bot.http_shares import note_known
from bot.rules.approvals.approvers import Deed
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import Verdict
from bot.rules.values.reply_code import ReplyCode
from bot.services.access.api_keys import Principal, authenticate
from bot.services.nodes.checkins import STRANGE
from bot.services.nodes.enrollment import SHAPE
from bot.services.people import eligibility
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context

#: Paths for callers with an API key.
GUARDED = ("/api/", "/metrics")
#: Paths for nodes, each with its own token.
AGENT = "/agent/"
#: The most bytes of a check-in.
AGENT_BYTES = 16 * 1024
LONGEST_HEADER = 512
#: How often Slack is asked about the person behind a key, how long that may take, and for how many keys it is known.
ASK_SLACK_EVERY_S, SLACK_ANSWERS_S, KEYS_KNOWN = 60.0, 3.0, 2_000
SERVER_ERROR = 500


UNAUTHENTICATED = Reply(
    False,
    ReplyCode.UNAUTHENTICATED,
    f"This needs a valid API key: Authorization: Bearer gpuk_…. To create one: {cli_command('keys create')}.",
)
CHALLENGE = {"WWW-Authenticate": "Bearer"}


class AuthMiddleware:
    """Let a call pass to `app` with its principal, or refuse it; paths that need no key pass unchanged."""

    def __init__(self, app: ASGIApp, deps: Dependencies) -> None:
        self._app = app
        self._deps = deps
        self._calls = RateLimiter(deps.ctx.clock, deps.settings.calls_per_minute)
        # On SQLite one process serves alone, so there is no replica to share with.
        self._shared = (
            SharedLimiter(deps.ctx.db, deps.ctx.clock, deps.settings.calls_per_minute)
            if deps.ctx.db.dialect == "postgresql"
            else None
        )
        self._people = _People(deps.ctx)
        self._wrong = RateLimiter(deps.ctx.clock, deps.settings.wrong_keys_per_minute)
        self._nodes = RateLimiter(deps.ctx.clock, deps.settings.checkins_per_minute)

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
            # Either the framework has answered the error, or it was raised before the framework. A half-sent answer
            # must end the connection.
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
        note_known(scope)
        allowance = await self._shared.take(who.key_id) if self._shared else self._calls.take(who.key_id)
        if allowance.allowed and (left := await self._people.left(who)):
            await problem(Reply(False, left.code, left.sentence))(scope, receive, send)
            return
        scope.setdefault("state", {})[PRINCIPAL] = who
        await self._limited(scope, receive, send, allowance, self._deps.settings.body_bytes)

    async def _agent(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        token = _bearer(scope)
        if token is None or not SHAPE.fullmatch(token):
            await problem(STRANGE, headers=CHALLENGE)(scope, receive, send)
            return
        scope.setdefault("state", {})[NODE] = token
        await self._limited(scope, receive, send, self._nodes.take(token), AGENT_BYTES)

    async def _limited(self, scope: Scope, receive: Receive, send: _Watched, allowance: Allowance, most: int) -> None:
        """Serve a call whose body has at most `most` bytes, unless its caller calls too often."""
        send.headers = allowance.headers
        served = self._app if allowance.allowed else problem(_too_often(allowance))
        if allowance.allowed and _declared(scope) > most:
            served = problem(Reply(False, ReplyCode.BODY_TOO_LARGE, _too_large(most)))
        await served(scope, _capped(receive, most), send)

    def _strange(self, scope: Scope) -> Any:
        """Refuse a caller without a working key, and limit wrong keys per address.

        Only wrong keys are counted: behind a load balancer everybody has the same address, and one caller's guesses
        must not block the others.
        """
        if _said(scope):
            allowance = self._wrong.take(str((scope.get("client") or ("",))[0]))
            if not allowance.allowed:
                sentence = f"Too many calls with a wrong key. Try again in {allowance.retry_after_s} s."
                return problem(Reply(False, ReplyCode.RATE_LIMITED, sentence), headers=allowance.headers)
        return problem(UNAUTHENTICATED, headers=CHALLENGE)

    async def _principal(self, scope: Scope) -> Principal | None:
        token, ctx = _bearer(scope), self._deps.ctx
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
    sentence = f"At most {allowance.limit} calls a minute. Try again in {allowance.retry_after_s} s."
    return Reply(False, ReplyCode.RATE_LIMITED, sentence)


def _too_large(most: int) -> str:
    return f"A body has at most {most // 1024} KiB."


def _declared(scope: Scope) -> int:
    """Return the length that a call's header gives for its body; 0 where it gives none."""
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(said) if said.isdigit() and len(said) <= 18 else 0


def _capped(receive: Receive, most: int) -> Receive:
    """Return a `receive` that refuses a body longer than `most` bytes."""
    read = 0

    async def capped() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > most:
            raise HTTPException(413, _too_large(most))
        return message

    return capped


class _People:
    """Remember for a minute whether the person behind each key is still a member of the workspace.

    Slack's silence counts as a yes and is remembered, too, so that an outage of Slack does not slow every call down.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._known: dict[str, tuple[float, Verdict | None]] = {}

    async def left(self, who: Principal) -> Verdict | None:
        """Return why a key may not be used; None when it may."""
        now_s = self._ctx.clock.monotonic()
        known = self._known.get(who.key_id)
        if known is not None and now_s - known[0] < ASK_SLACK_EVERY_S:
            return known[1]
        if len(self._known) >= KEYS_KNOWN:
            self._known.clear()
        found: Verdict | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(SLACK_ANSWERS_S):
                found = await eligibility.ineligible_for(self._ctx, who.owner, Deed.KEY)
        self._known[who.key_id] = (now_s, found)
        return found


class _Watched:
    """Send messages, note whether an answer has begun, and add `headers` to it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __call__(self, message: Message) -> None:
        """Pass one message on, with the security headers added to the first one."""
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            extra = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **self.headers}
            given = {name.lower() for name, _ in message.get("headers", ())}
            added = [(n.lower().encode(), v.encode()) for n, v in extra.items() if n.lower().encode() not in given]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await self._send(message)
