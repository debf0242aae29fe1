"""Write people's names into every answer, and mask the signatures of addresses, so that no route can forget it."""

from __future__ import annotations

import json
import re
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.api.dependencies import Dependencies
from ledger.kernel.secret_shapes import without_signatures, without_signatures_in

#: The answers that people read; health checks and agents' check-ins name nobody.
NAMED: Final = "/api/"
_REFERENCE: Final = re.compile(rb"slack:(?:[TE][A-Z0-9]{1,20}/)?[UW][A-Z0-9]{2,20}")
#: What begins a person's name in a sentence beside such a reference: a mention, and the budget of a person.
_OTHERS: Final = (b"<@U", b"<@W", b"user:U", b"user:W")


def _names_somebody(body: bytes) -> bool:
    """Whether a text of several words may name a member of Slack; a reference that is a whole value is an id."""
    within = any(
        body[one.start() - 1 : one.start()] + body[one.end() : one.end() + 1] != b'""'
        for one in _REFERENCE.finditer(body)
    )
    return within or any(other in body for other in _OTHERS)


def _signs_something(body: bytes) -> bool:
    """Whether an address in an answer has a signature or a password."""
    text = body.decode() if b"://" in body else ""
    return without_signatures(text) != text


class NamesInAnswers:
    """Read the names before a call, and put them into the sentences of its answer. A stream does this itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] != "http" or not scope["path"].startswith(NAMED):
            await self._app(scope, receive, send)
            return
        deps: Dependencies = scope["app"].state.deps
        await deps.ctx.names.refresh(deps.ctx.db, deps.ctx.clock)
        await self._app(scope, receive, _Named(send, deps))


class _Named:
    """Hold the head of an answer until its body is there, because names change how long it is."""

    def __init__(self, send: Send, deps: Dependencies) -> None:
        self._send = send
        self._deps = deps
        self._head: Message | None = None

    async def __call__(self, message: Message) -> None:
        """Pass one message on."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        head, self._head = self._head, None
        if head is not None:
            head, message = self._answered(head, message)
            await self._send(head)
        await self._send(message)

    def _answered(self, head: Message, message: Message) -> tuple[Message, Message]:
        body: bytes = message.get("body", b"")
        headers = [(name.lower(), value) for name, value in head.get("headers", ())]
        is_json = any(name == b"content-type" and value.split(b";")[0].endswith(b"json") for name, value in headers)
        if message.get("more_body") or not is_json:
            return head, message
        has_names, has_signatures = _names_somebody(body), _signs_something(body)
        if not has_names and not has_signatures:
            return head, message
        ctx, answer = self._deps.ctx, json.loads(body)
        answer = ctx.names.in_answer(ctx.policy, answer) if has_names else answer
        answer = without_signatures_in(answer) if has_signatures else answer
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        length = str(len(body)).encode()
        headers = [(name, length if name == b"content-length" else value) for name, value in headers]
        return {**head, "headers": headers}, {**message, "body": body}
