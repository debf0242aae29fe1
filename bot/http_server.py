"""Serve HTTP so that callers without a key cannot use up connections, file descriptors, memory or the log.

The same process terminates instances, so a part of its file descriptors is reserved for clouds, Slack and the ledger.
Above the rest, a new connection takes the place of the oldest one of a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import uvicorn

from bot.http_connection import MOST_CONNECTIONS, HttpConfig, Limits
from bot.http_shares import Callers
from bot.logs import OncePerMinute

#: How many connections wait in the kernel until they are accepted.
BACKLOG: Final = 1024
#: File descriptors that callers never get: clouds, Slack, the ledger, webhooks and SSH use them.
RESERVED: Final = 512

log = logging.getLogger(__name__)


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
    callers: Callers | None = None,
    date_header: bool = True,
) -> AsyncIterator[None]:
    """Serve an ASGI application on a bound socket inside the block; the caller handles signals.

    `callers` recognizes who calls; without it every caller is taken for a program, which has most slots.

    Without `date_header` the application itself says what time it is.
    """
    config = HttpConfig(app, limits or Limits(), callers, lifespan, date_header=date_header)
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
            config.slots.close()


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
