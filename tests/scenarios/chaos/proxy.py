"""A fault proxy between real `serve` processes and the sandboxes: every call may be lost, doubled, delayed or spoiled.

Each replica calls through a prefix of its own (`/r0/vast/…`), so that a call tells which process made it and that
process can be killed exactly there.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support.barriers import Which
from tests.support.stack import CALLS

#: How long a reply hangs, and how late an effect may land, in seconds.
HANG_S = (5.0, 25.0)
LATE_S = (2.0, 20.0)
LABEL = re.compile(r"[0-9a-z]{4}-[0-9a-z]{16}-[0-9a-z]{2}-[0-9a-z]{10}")
REPLICA = re.compile(r"/r(\d+)(/.*)")


class Fault(StrEnum):
    """What may happen to a call, as the table names it."""

    REFUSED = "connection dropped before the call was read"
    LOST_REPLY = "reply lost after the effect"
    ERROR_BEFORE = "503 before the effect"
    ERROR_AFTER = "502 after the effect"
    HANG = "reply hangs"
    DUPLICATE = "call delivered twice"
    LATE = "reply lost, effect lands late"
    TRUNCATED = "reply cut in the middle"
    STALE = "listing of a moment before"
    SHORT = "listing or search without half of its rows"


ANY_CALL = (Fault.REFUSED, Fault.LOST_REPLY, Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.HANG, Fault.TRUNCATED)
WRITES = (*ANY_CALL, Fault.DUPLICATE, Fault.LATE)
LISTINGS = (*ANY_CALL, Fault.STALE, Fault.SHORT)
SEARCHES = (*ANY_CALL, Fault.SHORT)


@dataclass
class Reply:
    """An answer of a sandbox, kept before it goes on."""

    messages: list[Message] = field(default_factory=list)

    async def keep(self, message: Message) -> None:
        """Take one message of the answer."""
        self.messages.append(message)

    @property
    def status(self) -> int:
        """Return the status code; 500 for an answer that never began."""
        return int(self.messages[0]["status"]) if self.messages else 500

    @property
    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(message.get("body", b"") for message in self.messages[1:])


class FaultProxy:
    """ASGI middleware in front of the sandboxes. `rate` is the share of calls that meet a fault."""

    def __init__(self, app: ASGIApp, random: Random, rate: float) -> None:
        self.rate = rate
        self.counts: Counter[str] = Counter()
        #: How often the bot itself sent a create with each label; what the proxy doubled is not in it.
        self.sent: Counter[str] = Counter()
        #: When the first create with each label arrived, in seconds of the monotonic clock.
        self.sent_s: dict[str, float] = {}
        #: Clouds that nobody reaches now.
        self.dark: set[str] = set()
        #: Called with the replica and the point (before or after the effect); True: the caller is dead now.
        self.on_call: Callable[[int, Point], bool] = lambda _replica, _point: False
        self._app = app
        self._random = random
        self._before: dict[str, Reply] = {}
        self._late: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, with or without a fault."""
        found = REPLICA.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        replica, path = int(found[1]), found[2]
        cloud = path.split("/")[1]
        raw = scope.get("raw_path") or scope["path"].encode()
        scope = {**scope, "path": path, "raw_path": raw[len(f"/r{replica}") :]}
        body = await _whole(receive)
        kind = _kind(cloud, scope["method"], path)
        if kind == "create":
            labels = LABEL.findall(unquote(body.decode("latin-1")))[:1]
            self.sent.update(labels)
            for label in labels:
                self.sent_s.setdefault(label, time.monotonic())
        if cloud in self.dark or self.on_call(replica, Point(kind, is_after=False)):
            _hang_up(send)
            return
        await self._call(scope, body, send, kind, replica)

    async def _call(self, scope: Scope, body: bytes, send: Send, kind: str, replica: int) -> None:
        fault = self._fault(scope["method"], kind)
        if fault is not None:
            self.counts[fault] += 1
        if fault is Fault.REFUSED:
            _hang_up(send)
            return
        if fault is Fault.ERROR_BEFORE:
            await _answer(send, 503, b"503 Service Temporarily Unavailable")
            return
        if fault is Fault.LATE:
            task = asyncio.create_task(self._lands_late(scope, body))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            _hang_up(send)
            return
        reply = await self._reply(scope, body)
        if fault is Fault.DUPLICATE:
            await self._reply(scope, body)
        before, self._before[scope["path"]] = self._before.get(scope["path"], reply), reply
        if fault is Fault.LOST_REPLY or self.on_call(replica, Point(kind, is_after=True)):
            _hang_up(send)
        elif fault is Fault.ERROR_AFTER:
            await _answer(send, 502, b"502 Bad Gateway")
        else:
            await self._pass_on(before if fault is Fault.STALE else reply, fault, send)

    async def _pass_on(self, reply: Reply, fault: Fault | None, send: Send) -> None:
        if fault is Fault.HANG:
            await asyncio.sleep(self._random.uniform(*HANG_S))
        if fault is Fault.SHORT:
            await _answer(send, reply.status, halved(reply.body))
            return
        if fault is Fault.TRUNCATED:
            with suppress(Exception):  # The other side may have hung up by itself.
                await send(reply.messages[0])
                await send(
                    {"type": "http.response.body", "body": reply.body[: len(reply.body) // 2], "more_body": True}
                )
            _hang_up(send)
            return
        for message in reply.messages:
            await send(message)

    def _fault(self, method: str, kind: str) -> Fault | None:
        if self._random.random() >= self.rate:
            return None
        if kind == "list":
            return self._random.choice(LISTINGS)
        if kind == "search":
            return self._random.choice(SEARCHES)
        return self._random.choice(ANY_CALL if method == "GET" else WRITES)

    async def _reply(self, scope: Scope, body: bytes) -> Reply:
        reply, given = Reply(), [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return given.pop() if given else {"type": "http.disconnect"}

        await self._app(dict(scope), receive, reply.keep)
        return reply

    async def _lands_late(self, scope: Scope, body: bytes) -> None:
        await asyncio.sleep(self._random.uniform(*LATE_S))
        await self._reply(scope, body)

    async def settle(self) -> None:
        """Wait for every effect that lands late."""
        await asyncio.gather(*self._late)


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of a call: its kind (search, create, list, destroy, other), before or after its effect."""

    kind: str
    is_after: bool


def _kind(cloud: str, method: str, path: str) -> str:
    calls: dict[str, Which] = dict(CALLS.get(cloud, {}))
    return next((name for name, which in calls.items() if which.fits(method, path)), "other")


async def _whole(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


def _hang_up(send: Any) -> None:
    """Reset the connection. Uvicorn's cycle, whose method `send` is, has no other way to say nothing at all."""
    cycle = send.__self__
    cycle.transport.abort()
    cycle.response_started = cycle.response_complete = True


async def _answer(send: Send, status: int, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


def halved(body: bytes) -> bytes:
    """Return a JSON listing or search whose longest list has lost its second half; Lambda's types are an object."""
    try:
        data = json.loads(body)
    except ValueError:
        return body
    inner: Any = data["data"] if isinstance(data, dict) and isinstance(data.get("data"), dict) else data
    lists = [value for value in (inner.values() if isinstance(inner, dict) else [inner]) if isinstance(value, list)]
    if lists:
        longest = max(lists, key=len)
        del longest[len(longest) // 2 :]
    elif inner is not data:
        for name in list(inner)[len(inner) // 2 :]:
            del inner[name]
    return json.dumps(data).encode()
