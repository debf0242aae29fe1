"""Serve HTTP so that callers without a key cannot use up connections, file descriptors, memory or the log.

The same process terminates instances, so a part of its file descriptors is reserved for clouds, Slack and the ledger.
A connection above the rest is dropped when it is made, because Uvicorn's own limit counts requests and never sees an
idle socket. A client has a few seconds to send the head of a request, and its body.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.logs import OncePerMinute

#: How long accepted requests may take once no more are accepted.
DRAIN_S: Final = 5
#: Longer than the 60 s after which usual load balancers close an idle connection, so that they never reuse a dead one.
KEEP_ALIVE_S: Final = 75
#: How many connections wait in the kernel until they are accepted.
BACKLOG: Final = 1024
#: How many are accepted in one turn of the event loop. asyncio logs each that fails, so it is far below the backlog.
ACCEPTED_AT_ONCE: Final = 64
#: File descriptors that callers never get: clouds, Slack, the ledger, webhooks and SSH use them.
RESERVED: Final = 512
#: More than this many connections cost too much memory, however many file descriptors there are.
MOST_CONNECTIONS: Final = 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections may be open at once, and how long the head and the body of a request may take to arrive."""

    connections: int = MOST_CONNECTIONS
    head_s: float = 10.0
    body_s: float = 15.0


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # A container may refuse what its own limit names.
            hard = soft
    return MOST_CONNECTIONS + RESERVED if hard == resource.RLIM_INFINITY else hard


def limits_for(descriptors: int) -> Limits:
    """Return the limits of a server that may have this many files open: all but the reserved ones, or a quarter."""
    return Limits(min(max(descriptors - RESERVED, descriptors // 4), MOST_CONNECTIONS))


class _Part(StrEnum):
    """A part of a request that is awaited."""

    HEAD = "head"
    BODY = "body"


class _Config(uvicorn.Config):
    """The configuration of a server with its limits; the connections of one server share it."""

    def __init__(self, app: Any, limits: Limits, lifespan: Literal["on", "off"], *, date_header: bool) -> None:
        super().__init__(
            app,
            http=_Connection,
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
        self.limits = limits
        self.lines = OncePerMinute(asyncio.get_running_loop().time)


class _Connection(H11Protocol):
    """One connection. It is dropped when too many are open, or when a part of a request takes too long to arrive."""

    config: _Config
    _awaited: _Part | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # Uvicorn's signature.
        """Accept the connection, or drop it when as many are open as may be."""
        limits = self.config.limits
        if len(self.connections) < limits.connections:
            super().connection_made(transport)
            self._watch()
            return
        self.transport = transport
        transport.abort()
        if (more := self.config.lines.may_log("full")) is not None:
            log.warning(
                "a connection was dropped, because %d are open (%d more in the last minute)", limits.connections, more
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its deadline."""
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what arrived, and note what is awaited next."""
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        """Start the deadline of the part that is awaited now. More bytes of the same part do not prolong it."""
        awaited = self._part()
        if awaited is not self._awaited:
            self._set_deadline(awaited)

    def _part(self) -> _Part | None:
        state = self.conn.their_state
        served: Any = self.cycle  # None until the first request, whatever Uvicorn declares.
        if state is h11.SEND_BODY:
            return _Part.BODY
        # Between two requests Uvicorn's own timer runs, until a byte of the second one arrives.
        if state is h11.IDLE and (served is None or self.conn.trailing_data[0]):
            return _Part.HEAD
        return None

    def _set_deadline(self, awaited: _Part | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited, self._deadline = awaited, None
        if awaited is not None:
            limits = self.config.limits
            wait_s = limits.head_s if awaited is _Part.HEAD else limits.body_s
            self._deadline = self.loop.call_later(wait_s, self.transport.abort)


class _QuietServer(uvicorn.Server):
    """A Uvicorn server that leaves signals alone; Uvicorn would raise a caught signal again before we have stopped.

    `ready` is set once connections are accepted.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # asyncio has shortened the kernel's queue to what it accepts in one turn.
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


@asynccontextmanager
async def http(
    app: Any,
    listening: socket.socket,
    *,
    lifespan: Literal["on", "off"] = "off",
    limits: Limits | None = None,
    date_header: bool = True,
) -> AsyncIterator[None]:
    """Serve an ASGI application on a bound socket inside the block; the caller handles signals.

    Without `date_header` the application itself says what time it is.
    """
    config = _Config(app, limits or Limits(), lifespan, date_header=date_header)
    server = _QuietServer(config)
    with _few_accept_errors(config.lines):
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="http")
        try:
            ready = asyncio.create_task(server.ready.wait(), name="http-ready")
            await asyncio.wait({ready, serving}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            yield
        finally:
            server.should_exit = True
            await serving


@contextlib.contextmanager
def _few_accept_errors(lines: OncePerMinute) -> Iterator[None]:
    """Log inside the block at most once a minute that no connection can be accepted; asyncio logs each attempt."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handle(running: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept()"):
            (before or type(running).default_exception_handler)(running, context)
        elif (more := lines.may_log("accept")) is not None:
            log.error("no connection can be accepted: %s (%d more in the last minute)", context.get("exception"), more)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
