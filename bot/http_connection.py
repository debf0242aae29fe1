"""Read requests so that a caller whom nobody knows costs little and holds nothing.

The head of a request shows who calls. The request then waits for its turn in that caller's share, and only then it is
parsed and served. A caller has some seconds to send each part, and must read the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.http_shares import (
    KNOWN,
    NOTE_KNOWN,
    QUOTAS,
    Callers,
    RequestHead,
    ServerShare,
    ShareQuota,
    Slots,
    Ticket,
    Unsigned,
)
from bot.logs import OncePerMinute

#: How long accepted requests may take once no more are accepted.
DRAIN_S: Final = 5
#: Longer than the 60 s after which usual load balancers close an idle connection, so that they never reuse a dead one.
KEEP_ALIVE_S: Final = 75
#: How many are accepted in one turn of the event loop. asyncio logs each that fails, so it is far below the backlog.
ACCEPTED_AT_ONCE: Final = 64
#: More than this many connections cost too much memory, however many file descriptors there are.
MOST_CONNECTIONS: Final = 4096
#: Where the head of a request ends, and how long it may be; the HTTP library allows as much.
HEAD_END: Final = b"\r\n\r\n"
HEAD_MAX: Final = 16 * 1024
#: All bytes that wait for a turn.
WAITING_MAX: Final = 32 * 1024 * 1024


def plain_answer(status: str, sentence: str, *headers: str) -> bytes:
    """Return the bytes of an answer that closes its connection; it costs nothing to send."""
    lines = ["HTTP/1.1 " + status, "content-type: text/plain; charset=utf-8", f"content-length: {len(sentence)}"]
    return "\r\n".join([*lines, *headers, "connection: close", "", sentence]).encode()


#: What a stranger reads whose turn did not come.
BUSY: Final = plain_answer("503 Service Unavailable", "Too many calls wait. Try again in a moment.", "retry-after: 10")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections may be open at once, and how long each part of a call may take.

    The head and the body must arrive, the call's turn must come, and its answer must be read.
    """

    connections: int = MOST_CONNECTIONS
    head_s: float = 10.0
    body_s: float = 15.0
    turn_s: float = 5.0
    #: Who reads fewer bytes a second is dropped after `write_s`, or after `pressed_s` while others wait for the slot.
    read_bytes_per_s: float = 4096.0
    write_s: float = 10.0
    pressed_s: float = 2.0
    look_s: float = 1.0
    quotas: Mapping[ServerShare, ShareQuota] = field(default_factory=lambda: QUOTAS)


class _Part(StrEnum):
    """A part of a request that is awaited, or its turn."""

    HEAD = "head"
    BODY = "body"
    TURN = "turn"


class _Anybody:
    """Take every caller for a program: for servers that only this machine's own programs call."""

    def share_of(self, head: RequestHead) -> ServerShare:
        """Return the share of programs."""
        return ServerShare.PROGRAMS

    def share_of_body(self, head: RequestHead, body: bytes) -> ServerShare:
        """Return the share of programs."""
        return ServerShare.PROGRAMS

    def note_known(self, head: RequestHead) -> None:
        """Remember nothing."""


class _Lines(logging.LoggerAdapter[logging.Logger]):
    """Log each warning that a caller can cause once a minute, and everything else always."""

    def __init__(self, logger: logging.Logger, lines: OncePerMinute) -> None:
        super().__init__(logger)
        self.level = logging.INFO  # Uvicorn looks whether it traces.
        self._lines = lines

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a warning, unless it was logged in the last minute."""
        if (more := self._lines.may_log(str(msg))) is not None:
            super().warning("%s (%d more in the last minute)", str(msg).strip(), more)


class HttpConfig(uvicorn.Config):
    """The configuration of a server with its limits; the connections of one server share it."""

    def __init__(
        self, app: Any, limits: Limits, callers: Callers | None, lifespan: Literal["on", "off"], *, date_header: bool
    ) -> None:
        super().__init__(
            app,
            http=HttpConnection,
            # The bot serves no WebSocket, and an upgraded connection would be counted no more.
            ws="none",
            log_config=None,
            access_log=False,
            lifespan=lifespan,
            interface="asgi3",
            timeout_graceful_shutdown=DRAIN_S,
            server_header=False,
            date_header=date_header,
            backlog=ACCEPTED_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        loop = asyncio.get_running_loop()
        self.limits = limits
        self.lines = OncePerMinute(loop.time)
        self.logger = _Lines(logging.getLogger("uvicorn.error"), self.lines)
        self.callers = callers or _Anybody()
        self.slots = Slots(loop, limits.quotas)
        #: Connections whose callers are not known, the oldest first, and the bytes that all wait with before a turn.
        self.strangers: dict[HttpConnection, None] = {}
        self.bytes_waiting = 0


class HttpConnection(H11Protocol):
    """One connection. A request is read, queued for a slot of its share, and only then parsed and served.

    The connection is closed when a part of a request takes too long to arrive, when its caller reads too slowly, and
    when a new one needs its place and its caller is a stranger.
    """

    config: HttpConfig
    _awaited: _Part | None = None
    _deadline: asyncio.TimerHandle | None = None
    #: What arrived of the next request, until its turn has come.
    _raw: bytes = b""
    _head: RequestHead | None = None
    _ticket: Ticket | None = None
    #: What its caller reads whose turn doesn't come, or who is refused.
    _answer: bytes = BUSY
    #: Whether what arrives belongs to a request that has its turn.
    _is_served: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # Uvicorn's signature.
        """Accept the connection. When too many are open, close the oldest one of a stranger, or else this one."""
        config = self.config
        if len(self.connections) >= config.limits.connections:
            if (more := config.lines.may_log("full")) is not None:
                count = config.limits.connections
                log.warning("a connection was dropped, because %d are open (%d more in the last minute)", count, more)
            if not config.strangers:
                self.transport = transport
                transport.abort()
                return
            next(iter(config.strangers)).drop()
        super().connection_made(transport)
        self.app = self._call
        self.logger = config.logger  # type: ignore[assignment] # It does what Uvicorn asks of one.
        config.strangers[self] = None
        self._set_deadline(_Part.HEAD)

    def drop(self) -> None:
        """Close the connection without an answer."""
        self.config.strangers.pop(self, None)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, its deadline, and its place in a queue."""
        self._set_deadline(None)
        self.config.strangers.pop(self, None)
        self._keep(b"")
        ticket = self._ticket
        if ticket is not None and not ticket.has_slot:
            self.config.slots.leave(ticket)
            self._ticket = None
        super().connection_lost(exc)
        # What refers to itself is freed by the garbage collector only, which runs rarely here.
        if self._ticket is None:
            self.app = self.config.loaded_app

    def data_received(self, data: bytes) -> None:
        """Read what arrived: into the request that is served, or until its caller can be recognized."""
        if self._is_served:
            super().data_received(data)
            self._after_parsing()
            return
        self._unset_keepalive_if_required()
        if self._awaited is None:
            self._set_deadline(_Part.HEAD)
        self._keep(self._raw + data)
        if self._ticket is None and not self.transport.is_closing():
            self._recognize_caller()

    def _keep(self, raw: bytes) -> None:
        """Keep bytes until their turn; while too many wait, the oldest stranger's are given up."""
        self.config.bytes_waiting += len(raw) - len(self._raw)
        self._raw = raw
        if raw and self.config.bytes_waiting > WAITING_MAX:
            next((stranger for stranger in self.config.strangers if stranger._raw), self).drop()  # noqa: SLF001 # Its own kind.

    def _recognize_caller(self) -> None:
        """Queue the request in the share of its caller, as soon as enough of it has arrived."""
        end = self._raw.find(HEAD_END)
        if end < 0:
            if len(self._raw) > HEAD_MAX:
                self._queue(ServerShare.STRANGERS)  # It is refused there by those who parse it.
            return
        try:
            if self._head is None:
                self._head = RequestHead.read(self._raw[:end])
                share = self.config.callers.share_of(self._head) if self._head else ServerShare.STRANGERS
                if share is not None:
                    self._queue(share)
                    return
                self._set_deadline(_Part.BODY)
            head, body = self._head, self._raw[end + len(HEAD_END) :]
            if head is not None and head.body_bytes is not None and len(body) >= head.body_bytes:
                self._queue(self.config.callers.share_of_body(head, body[: head.body_bytes]))
        except Unsigned as refused:
            self._answer = refused.answer
            self._queue(ServerShare.REFUSED)

    def _queue(self, share: ServerShare) -> None:
        if share in KNOWN:
            self.config.strangers.pop(self, None)
        self._ticket = self.config.slots.enter(share, self.client[0] if self.client else "", self._start)
        if self._ticket.has_slot:
            self._start()
        else:
            self._set_deadline(_Part.TURN)
            self.flow.pause_reading()

    def _start(self) -> None:
        """Parse and serve the request: its turn has come."""
        if self._ticket is None:
            return  # It got a slot as soon as it was queued; `_queue` starts it.
        if self._ticket.share is ServerShare.REFUSED:
            self._refuse()
            return
        raw, cycle = self._raw, self.cycle
        self._set_deadline(None)
        self._keep(b"")
        self._is_served = True
        self.flow.resume_reading()
        super().data_received(raw)
        if self.cycle is cycle and self._ticket is not None:  # It was malformed, and is answered.
            self.config.slots.leave(self._ticket)
            self._ticket = None
            self.transport.close()
        self._after_parsing()

    def _refuse(self) -> None:
        """Send an answer that was made before, and close the connection."""
        self._set_deadline(None)
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self.config.slots.leave(ticket)
        self.transport.write(self._answer)
        self.transport.close()
        self._deadline = self.loop.call_later(self.config.limits.write_s, self.transport.abort)

    def _after_parsing(self) -> None:
        """Start the deadline of a body that is awaited. More bytes of it do not prolong it."""
        if self.conn.their_state is not h11.SEND_BODY:
            self._set_deadline(None)
        elif self._awaited is not _Part.BODY:
            self._set_deadline(_Part.BODY)
        self._end_if_complete()

    def on_response_complete(self) -> None:
        """Read the next request. Requests that were sent before this answer are not served: the connection closes."""
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            self.transport.close()
        super().on_response_complete()
        self._end_if_complete()

    def _end_if_complete(self) -> None:
        """Treat what arrives now as a new request, once the last one is read and answered in full."""
        if self._ticket is None and self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE:
            self._is_served, self._head = False, None
            if self.timeout_keep_alive_task is None:  # The rest of a body, after its answer, stopped Uvicorn's timer.
                self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE_S, self.timeout_keep_alive_handler)

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one call in its slot, which it has until its answer has left this process."""
        ticket, head, self._ticket = self._ticket, self._head, None
        if ticket is None:
            self.transport.abort()  # It came with a request before it, and took no place in the queue.
            return
        if head is not None:
            scope[NOTE_KNOWN] = partial(self.config.callers.note_known, head)
        answer = _Answer(self, ticket)
        try:
            await self.config.loaded_app(scope, receive, answer.counting(send))
        finally:
            answer.is_complete = True
            answer.watch()

    def _set_deadline(self, awaited: _Part | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited, self._deadline = awaited, None
        if awaited is _Part.TURN:
            self._deadline = self.loop.call_later(self.config.limits.turn_s, self._refuse)
        elif awaited is not None:
            limits = self.config.limits
            wait_s = limits.head_s if awaited is _Part.HEAD else limits.body_s
            self._deadline = self.loop.call_later(wait_s, self.transport.abort)


class _Answer:
    """Watch that an answer is read, and give its slot back once it has left this process.

    A caller who reads fewer than `read_bytes_per_s` is dropped after `write_s`, and soon when others wait for the slot.
    """

    def __init__(self, connection: HttpConnection, ticket: Ticket) -> None:
        self._transport = connection.transport
        self._config, self._loop = connection.config, connection.loop
        self._ticket = ticket
        self.is_complete = False
        self._written = self._left = 0
        self._slow_s = 0.0
        self._timer = self._loop.call_later(self._config.limits.look_s, self.watch)
        self._looked_at = self._loop.time()
        self._flush_wait_s = 0.005

    def counting(self, send: Any) -> Any:
        """Return a `send` that counts the bytes of the body."""

        async def counted(message: Any) -> None:
            self._written += len(message.get("body", b""))
            await send(message)

        return counted

    def watch(self) -> None:
        """Look how much was read since the last look."""
        self._timer.cancel()
        unsent = self._transport.get_write_buffer_size()
        if self.is_complete and not unsent:
            self._config.slots.leave(self._ticket)
            return
        now = self._loop.time()
        limits = self._config.limits
        if (passed_s := now - self._looked_at) >= limits.look_s:
            left = self._written - unsent
            too_slow = unsent > 0 and left - self._left < limits.read_bytes_per_s * passed_s
            self._slow_s = self._slow_s + passed_s if too_slow else 0.0
            self._left, self._looked_at = left, now
            if self._slow_s >= self._patience_s():
                self._transport.abort()
        self._flush_wait_s = min(self._flush_wait_s * 2, limits.look_s)
        self._timer = self._loop.call_later(self._flush_wait_s if self.is_complete else limits.look_s, self.watch)

    def _patience_s(self) -> float:
        limits, share = self._config.limits, self._ticket.share
        return limits.pressed_s if self._config.slots.is_awaited(share) else limits.write_s
