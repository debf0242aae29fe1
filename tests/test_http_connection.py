"""Who reads nothing, waits too long or is refused holds nothing; Slack is served meanwhile."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from bot.http_connection import HEAD_MAX, HttpConnection, Limits, plain_answer
from bot.http_server import http
from bot.http_shares import QUOTAS, RequestHead, ServerShare, ShareQuota, Unsigned
from bot.main import listen

#: Real seconds that a test waits for an answer, at most.
LIMIT_S = 30.0
LARGE = 8 * 1024 * 1024
REFUSAL = plain_answer("401 Unauthorized", "not signed")
ONE_SLOT = Limits(quotas={**QUOTAS, ServerShare.STRANGERS: ShareQuota(1)}, look_s=0.05, pressed_s=0.1, write_s=60.0)


class ByPath:
    """Callers who say in the path who they are."""

    def share_of(self, head: RequestHead) -> ServerShare | None:
        if head.path == b"/refused":
            raise Unsigned(REFUSAL)
        return {b"/slack": None, b"/program": ServerShare.PROGRAMS}.get(head.path, ServerShare.STRANGERS)

    def share_of_body(self, head: RequestHead, body: bytes) -> ServerShare:
        if body != b"signed":
            raise Unsigned(REFUSAL)
        return ServerShare.SLACK

    def note_known(self, head: RequestHead) -> None:
        """Nobody shows a token here."""


class App:
    """Answer with the body; /large with more than any buffer takes, and /waits after `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.calls: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope["path"])
        if scope["path"] == "/waits":
            await self.goes_on.wait()
        body = b"x" * LARGE if scope["path"] == "/large" else (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


class Caller:
    """One connection of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: bytes = b"") -> None:
        self.writer.write(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    async def answer(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self.reader.readexactly(length)

    async def is_closed(self) -> bool:
        with suppress(ConnectionResetError):
            return await self.reader.read() == b""
        return True


class Place:
    """A server and those who call it."""

    def __init__(self, port: int, app: App) -> None:
        self.port, self.app = port, app
        self.callers: list[Caller] = []

    async def call(self, path: str = "", body: bytes = b"") -> Caller:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        self.callers.append(caller)
        if path:
            caller.send(path, body)
        return caller


@asynccontextmanager
async def server(limits: Limits) -> AsyncIterator[Place]:
    app = App()
    with listen("127.0.0.1", 0) as listening:
        async with asyncio.timeout(LIMIT_S), http(app, listening, limits=limits, callers=ByPath()):
            place = Place(listening.getsockname()[1], app)
            try:
                yield place
            finally:
                app.goes_on.set()
                for caller in place.callers:
                    caller.writer.transport.abort()


async def never_reads(port: int) -> socket.socket:
    """A connection that asks for a large page and reads nothing of it."""
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(silent, ("127.0.0.1", port))
    await loop.sock_sendall(silent, b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
    return silent


async def connections_left(count: int) -> None:
    """Return when the server has no more connections than that: a dropped one is freed at once."""
    async with asyncio.timeout(LIMIT_S):
        while sum(isinstance(one, HttpConnection) for one in gc.get_objects()) > count:  # noqa: ASYNC110 # No event.
            await asyncio.sleep(0.01)


async def test_slack_and_programs_are_served_while_strangers_wait() -> None:
    async with server(ONE_SLOT) as place:
        await place.call("/waits")
        stranger = await place.call("/page", b"b")
        assert await (await place.call("/slack", b"signed")).answer() == (200, b"signed")
        assert await (await place.call("/program", b"p")).answer() == (200, b"p")
        assert "/page" not in place.app.calls
        place.app.goes_on.set()
        assert await stranger.answer() == (200, b"b")


async def test_who_does_not_read_loses_the_slot_that_others_wait_for() -> None:
    async with server(ONE_SLOT) as place:
        with await never_reads(place.port), await never_reads(place.port):
            assert await (await place.call("/page", b"b")).answer() == (200, b"b")


async def test_who_does_not_read_is_dropped_though_nobody_waits() -> None:
    async with server(replace(ONE_SLOT, write_s=0.2)) as place:
        with await never_reads(place.port) as silent:
            await connections_left(0)
            silent.setblocking(True)
            silent.settimeout(LIMIT_S)

            def read_all() -> int:
                size = 0
                with suppress(ConnectionResetError):
                    while part := silent.recv(65_536):
                        size += len(part)
                return size

            assert await asyncio.to_thread(read_all) < LARGE


async def test_who_reads_in_pieces_gets_the_whole_answer() -> None:
    async with server(replace(ONE_SLOT, write_s=0.3)) as place:
        caller = await place.call("/large")
        await caller.reader.readuntil(b"\r\n\r\n")
        size = 0
        while size < LARGE:
            size += len(await caller.reader.read(256 * 1024))
            await asyncio.sleep(0.02)
        assert size == LARGE


async def test_whose_turn_does_not_come_reads_that_too_many_wait() -> None:
    async with server(replace(ONE_SLOT, turn_s=0.05)) as place:
        await place.call("/waits")
        late = await place.call("/page")
        status, body = await late.answer()
        assert (status, body) == (503, b"Too many calls wait. Try again in a moment.")
        assert await late.is_closed()


async def test_who_is_refused_reads_why_and_reaches_no_application() -> None:
    async with server(Limits()) as place:
        for caller in (await place.call("/refused"), await place.call("/slack", b"forged")):
            assert await caller.answer() == (401, b"not signed")
            assert await caller.is_closed()
        assert place.app.calls == []


async def test_refusals_wait_for_their_turn() -> None:
    """Who is refused at once calls again at once."""
    limits = Limits(quotas={**QUOTAS, ServerShare.REFUSED: ShareQuota(1, 20.0)})
    async with server(limits) as place:
        began = asyncio.get_running_loop().time()
        callers = [await place.call("/refused") for _ in range(10)]
        assert {await caller.answer() for caller in callers} == {(401, b"not signed")}
        assert asyncio.get_running_loop().time() - began > 0.2


async def test_a_new_connection_takes_the_place_of_the_oldest_strangers() -> None:
    async with server(Limits(connections=3)) as place:
        known = await place.call("/program", b"p")
        assert await known.answer() == (200, b"p")
        oldest, newer = await place.call("/page"), await place.call("/page")
        assert [await caller.answer() for caller in (oldest, newer)] == [(200, b""), (200, b"")]
        assert await (await place.call("/slack", b"signed")).answer() == (200, b"signed")
        assert await oldest.is_closed()
        for caller in (known, newer):
            caller.send("/page", b"again")
            assert await caller.answer() == (200, b"again")


async def test_a_closed_connection_is_freed_at_once() -> None:
    """The garbage collector runs rarely in the service, so that whatever it must free stays for long."""
    gc.collect()
    gc.disable()
    try:
        limits = replace(ONE_SLOT, turn_s=0.05)
        async with server(limits) as place:
            await place.call("/waits")
            for path in ("/refused", "/page", "/program", "/slack"):
                caller = await place.call(path, b"signed")
                await caller.answer()
                caller.writer.close()
            late = await place.call("/page")
            await late.answer()
            await connections_left(1)
    finally:
        gc.enable()


async def test_a_request_that_comes_before_an_answer_is_not_served() -> None:
    async with server(Limits()) as place:
        caller = await place.call("/program", b"1")
        caller.send("/waits")
        assert await caller.answer() == (200, b"1")
        assert await caller.is_closed()
        assert place.app.calls == ["/program"]


async def test_a_body_in_pieces_is_served_and_the_connection_stays() -> None:
    async with server(Limits()) as place:
        caller = await place.call()
        for piece in (b"POST /slack HT", b"TP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r", b"\nsig", b"ned"):
            caller.writer.write(piece)
            for _ in range(5):  # The server reads each piece in a turn of the same event loop.
                await asyncio.sleep(0)
        assert await caller.answer() == (200, b"signed")
        caller.send("/page", b"x" * 300_000)
        assert (await caller.answer())[0] == 200


@pytest.mark.parametrize("raw", [b"GET nothing\r\n\r\n", b"x" * (HEAD_MAX + 1), b"GET / HTTP/1.1\r\nbad\r\n\r\n"])
async def test_malformed_requests_take_no_slot_and_one_line_of_the_log(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(ONE_SLOT) as place:
        for _ in range(3):
            caller = await place.call()
            caller.writer.write(raw)
            assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert await (await place.call("/page", b"b")).answer() == (200, b"b")
    assert len([line for line in caplog.messages if "Invalid HTTP" in line]) == 1
