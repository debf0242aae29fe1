"""Share the HTTP server between Slack, nodes, programs and strangers, so that none of them can stop the others.

A call takes a slot of its share before anything expensive is done for it, and gives it back when its answer has left
the process. Who calls is read off the head of a request: Slack by its signature, nodes and programs by a token that was
accepted before. Everybody else is a stranger, whose calls wait for each other and start at a limited rate.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

#: Tokens that were accepted before, of which the least recently used are forgotten.
TOKENS_REMEMBERED: Final = 10_000
#: Where a request's scope has the function that notes its caller as known.
NOTE_KNOWN: Final = "gpu_shopper.note_known"
#: A share whose rate is limited may start so many calls at once after a pause.
BURST: Final = 4
#: A start that is late by a rounding error of its rate waits so long, because a shorter wait may add nothing.
LEAST_WAIT_S: Final = 0.001


class ServerShare(StrEnum):
    """Who calls, as far as the head of a request shows."""

    SLACK = "slack"
    NODES = "nodes"
    PROGRAMS = "programs"
    HEALTH = "health checks"
    NEW_TOKENS = "tokens seen for the first time"
    STRANGERS = "strangers"
    REFUSED = "refused"


#: Shares of callers who have proved who they are. Their connections are never closed in favour of others.
KNOWN: Final = frozenset({ServerShare.SLACK, ServerShare.NODES, ServerShare.PROGRAMS})


@dataclass(frozen=True, slots=True)
class ShareQuota:
    """How many calls of a share are served at once, and how many may start in a second (None: any number)."""

    slots: int
    per_s: float | None = None


#: Streams and calls that wait hold a slot of programs for long; each key may have a few. A stranger's call takes one to
#: two milliseconds, so all of them together take less than half of the event loop's time.
QUOTAS: Final[Mapping[ServerShare, ShareQuota]] = {
    ServerShare.SLACK: ShareQuota(512),
    ServerShare.NODES: ShareQuota(512),
    ServerShare.PROGRAMS: ShareQuota(1024),
    ServerShare.HEALTH: ShareQuota(16, 50.0),
    ServerShare.NEW_TOKENS: ShareQuota(16, 50.0),
    ServerShare.STRANGERS: ShareQuota(32, 100.0),
    # A refusal costs little, but a caller who is refused at once calls again at once.
    ServerShare.REFUSED: ShareQuota(32, 100.0),
}


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The first lines of a request, read just far enough to recognize its caller. Header names are in lower case."""

    method: bytes
    path: bytes
    headers: Mapping[bytes, bytes]

    @classmethod
    def read(cls, raw: bytes) -> RequestHead | None:
        """Read a head; None where it is malformed, which the HTTP library then answers."""
        first, *lines = raw.split(b"\r\n")
        words = first.split(b" ")
        if len(words) != 3:
            return None
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or (name := name.lower()) in headers:
                return None  # A header that occurs twice, too, is left to those who read it in full.
            headers[name] = value.strip()
        return cls(words[0], words[1].partition(b"?")[0], headers)

    @property
    def body_bytes(self) -> int | None:
        """How long the body is; None where the head gives no plain length."""
        length = self.headers.get(b"content-length", b"0")
        if b"transfer-encoding" in self.headers or b"expect" in self.headers:
            return None
        return int(length) if length.isdigit() and len(length) <= 9 else None


class Unsigned(Exception):
    """Refuse a request before it is parsed; `answer` are the bytes of the response, which wait for their turn, too."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("a request is refused before it is parsed")
        self.answer = answer


class Callers(Protocol):
    """Recognize who calls by the first bytes of a request."""

    def share_of(self, head: RequestHead) -> ServerShare | None:
        """Return the share of a call; None where its body is needed, too. Raises `Unsigned`."""

    def share_of_body(self, head: RequestHead, body: bytes) -> ServerShare:
        """Return the share of a call whose body has arrived. Raises `Unsigned`."""

    def note_known(self, head: RequestHead) -> None:
        """Remember that the token of this call was accepted."""


class KnownTokens:
    """Remember tokens that were accepted, as digests. It only orders calls; each call's token is checked again."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def add(self, token: bytes) -> None:
        """Remember a token."""
        self._digests[self._digest(token)] = None
        if len(self._digests) > TOKENS_REMEMBERED:
            self._digests.popitem(last=False)

    def __contains__(self, token: bytes) -> bool:
        digest = self._digest(token)
        if digest not in self._digests:
            return False
        self._digests.move_to_end(digest)
        return True

    @staticmethod
    def _digest(token: bytes) -> bytes:
        return hashlib.blake2b(token, digest_size=16).digest()


def note_known(scope: MutableMapping[str, Any]) -> None:
    """Note that the caller of this request has shown an accepted token."""
    note = scope.get(NOTE_KNOWN)
    if note is not None:
        note()


def _nothing() -> None:
    """Start nothing: the caller has left."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A call's place in its share: it waits, has a slot, or has left."""

    share: ServerShare
    address: str
    start: Callable[[], None]
    has_slot: bool = False
    left: bool = False


@dataclass(slots=True)
class _Line:
    """The state of one share: slots in use, calls that wait by address, and starts that its rate still allows."""

    quota: ShareQuota
    used: int = 0
    waiting: OrderedDict[str, deque[Ticket]] = field(default_factory=OrderedDict)
    starts: float = float(BURST)
    counted_at: float = 0.0
    timer: asyncio.TimerHandle | None = None

    def take_next(self) -> Ticket | None:
        """Take the oldest call of the address whose turn it is, out of those that still wait."""
        while self.waiting:
            address, calls = next(iter(self.waiting.items()))
            ticket = calls.popleft()
            if calls:
                self.waiting.move_to_end(address)
            else:
                del self.waiting[address]
            if not ticket.left:
                return ticket
        return None


class Slots:
    """Give out the slots of each share to one address after the other, and for each in the order of its calls.

    So a health check or a node waits for one call of each other address, however many calls a stranger makes. Behind a
    load balancer everybody has one address, and the order is that of the calls.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, quotas: Mapping[ServerShare, ShareQuota]) -> None:
        self._loop = loop
        self._lines = {share: _Line(quotas[share], counted_at=loop.time()) for share in ServerShare}

    def enter(self, share: ServerShare, address: str, start: Callable[[], None]) -> Ticket:
        """Call `start` as soon as the share has a slot, now or later."""
        line, ticket = self._lines[share], Ticket(share, address, start)
        line.waiting.setdefault(address, deque()).append(ticket)
        self._serve(line)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give back a slot, or a place in the queue. A second time changes nothing."""
        if ticket.left:
            return
        ticket.left = True
        ticket.start = _nothing
        line = self._lines[ticket.share]
        if ticket.has_slot:
            line.used -= 1
            self._serve(line)

    def is_awaited(self, share: ServerShare) -> bool:
        """Whether calls wait for a slot of this share."""
        return bool(self._lines[share].waiting)

    def _serve(self, line: _Line) -> None:
        now = self._loop.time()
        if line.quota.per_s is not None:
            line.starts = min(line.starts + (now - line.counted_at) * line.quota.per_s, float(BURST))
            line.counted_at = now
        while line.waiting and line.used < line.quota.slots:
            if line.quota.per_s is not None and line.starts < 1:
                if line.timer is None:
                    wait_s = max((1 - line.starts) / line.quota.per_s, LEAST_WAIT_S)
                    line.timer = self._loop.call_later(wait_s, self._again, line)
                return
            ticket = line.take_next()
            if ticket is None:
                return
            line.starts -= 1 if line.quota.per_s is not None else 0
            line.used += 1
            ticket.has_slot = True
            start, ticket.start = ticket.start, _nothing  # A call that has started is not kept by its ticket.
            start()

    def _again(self, line: _Line) -> None:
        line.timer = None
        self._serve(line)

    def close(self) -> None:
        """Start nothing more."""
        for line in self._lines.values():
            line.waiting.clear()
            if line.timer is not None:
                line.timer.cancel()
