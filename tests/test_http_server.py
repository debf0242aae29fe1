"""Callers who send nothing, too little or too much are dropped, and everybody else is served."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bot.http_connection import ACCEPTED_AT_ONCE, MOST_CONNECTIONS, Limits
from bot.http_server import RESERVED, http, limits_for, raise_descriptor_limit
from bot.main import listen

#: Real seconds that a test waits for an answer, at most.
LIMIT_S = 30.0
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer 200 once the body has arrived; /refused is answered before."""
    more = scope["path"] != "/refused"
    while more:
        message = await receive()
        more = message["type"] == "http.request" and message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def server(limits: Limits) -> AsyncIterator[int]:
    with listen("127.0.0.1", 0) as listening:
        port: int = listening.getsockname()[1]
        async with asyncio.timeout(LIMIT_S), http(echo, listening, limits=limits):
            yield port


class Caller:
    """One connection of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def served(self) -> bool:
        """Whether the answer is 200."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        return head.startswith(b"HTTP/1.1 200") and await self._reader.readexactly(2) == b"ok"

    async def dropped(self) -> None:
        """Return when the other end has closed the connection without a word."""
        with suppress(ConnectionResetError):
            assert await self._reader.read() == b""
        self.close()

    def close(self) -> None:
        self._writer.close()


async def call(port: int) -> Caller:
    return Caller(*await asyncio.open_connection("127.0.0.1", port))


async def test_a_connection_above_the_limit_is_dropped_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with server(Limits(connections=2)) as port:
        kept = [await call(port) for _ in range(2)]
        for caller in kept:
            caller.send(GET)
            assert await caller.served()
        for _ in range(5):
            await (await call(port)).dropped()
        kept.pop().close()
        async with asyncio.timeout(LIMIT_S):
            while True:  # The server hears a moment later that one has gone.
                later = await call(port)
                later.send(GET)
                try:
                    assert await later.served()
                    break
                except (ConnectionResetError, asyncio.IncompleteReadError):
                    later.close()
        for caller in (*kept, later):
            caller.close()
    lines = [one for one in caplog.messages if "was dropped" in one]
    assert len(lines) == 1, lines
    assert "because 2 are open" in lines[0]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", POST + b"12345"], ids=["nothing", "head", "body"])
async def test_who_sends_no_whole_request_is_dropped(sent: bytes) -> None:
    async with server(Limits(head_s=0.05, body_s=0.05)) as port:
        caller = await call(port)
        caller.send(sent)
        await caller.dropped()


async def test_a_byte_now_and_then_does_not_prolong_a_deadline() -> None:
    async with server(Limits(head_s=0.2)) as port:
        caller = await call(port)
        gone = asyncio.create_task(caller.dropped())
        for byte in GET * 100:
            if gone.done():
                break
            caller.send(bytes([byte]) if byte not in b"\r\n" else b"x")
            await asyncio.wait({gone}, timeout=0.01)
        await gone


async def test_a_slow_second_request_is_dropped_and_an_idle_connection_is_kept() -> None:
    async with server(Limits(head_s=0.5, body_s=0.5)) as port:
        idle, slow = await call(port), await call(port)
        for caller in (idle, slow):
            caller.send(POST + b"1234567890")
        for caller in (idle, slow):
            assert await caller.served()
        refused = await call(port)
        refused.send(POST.replace(b"/ ", b"/refused ") + b"12345")
        assert await refused.served()
        slow.send(b"GET /")
        await asyncio.gather(slow.dropped(), refused.dropped())
        idle.send(GET)
        assert await idle.served()
        idle.close()


async def test_failed_accepts_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    loop = asyncio.get_running_loop()
    async with server(Limits()):
        for _ in range(100):
            context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many files")}
            loop.call_exception_handler(context)
        loop.call_exception_handler({"message": "something else"})
    assert [one for one in caplog.messages if "accept" in one or "else" in one] == [
        "no connection can be accepted: [Errno 24] Too many files (0 more in the last minute)",
        "something else",
    ]


async def test_connections_wait_in_the_kernel_while_the_bot_is_busy() -> None:
    async with server(Limits()) as port:
        callers = [socket.create_connection(("127.0.0.1", port), timeout=0.5) for _ in range(300)]
        for caller in callers:
            caller.close()


async def test_one_turn_of_the_loop_accepts_few_of_many_connections() -> None:
    """What ends machines waits for one turn at most, however many call at once."""
    async with server(Limits()) as port:
        callers = [socket.create_connection(("127.0.0.1", port), timeout=0.5) for _ in range(300)]
        before = descriptors()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < descriptors() - before <= 2 * ACCEPTED_AT_ONCE
        for caller in callers:
            caller.close()


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(1024, 512), (600, 150), (2000, 2000 - RESERVED), (1_048_576, MOST_CONNECTIONS)]
)
def test_a_part_of_the_file_descriptors_is_reserved(descriptors: int, connections: int) -> None:
    assert limits_for(descriptors).connections == connections
