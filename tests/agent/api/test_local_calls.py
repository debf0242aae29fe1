"""Calls to a server on the same machine: connections are kept, and whatever goes wrong is one of two errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bot.agent.api.local_calls import KEPT, LocalCalls, NoServer, TooSlow

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: r1\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def answering(*answers: bytes, closes: bool = False) -> AsyncIterator[tuple[int, list[int]]]:
    """A server that gives these answers in turn, the last one for ever; the list has the calls of each connection."""
    calls: list[int] = []
    open_ones: list[asyncio.StreamWriter] = []
    given = iter([*answers[:-1], *[answers[-1]] * 1000])

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(0)
        open_ones.append(writer)
        number = len(calls) - 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.partition(b":")[2]))
                calls[number] += 1
                answer = next(given)
                writer.write(answer)
                await writer.drain()
                if closes or not answer.endswith(b"ok"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], calls
    finally:
        server.close()
        for writer in open_ones:
            writer.transport.abort()
        await asyncio.sleep(0)


async def called(calls: LocalCalls, port: int) -> bytes:
    answer = await calls.post(port, "/x", b"{}", {"Accept": "*/*"})
    try:
        assert (answer.status, answer.headers["x-request-id"]) == (200, "r1")
        return b"".join([piece async for piece in answer.pieces()])
    finally:
        answer.close()


async def test_one_connection_serves_one_call_after_another() -> None:
    async with answering(OK) as (port, seen):
        calls = LocalCalls()
        for _ in range(3):
            assert await called(calls, port) == b"ok"
        assert seen == [3]
        # Calls at the same time have connections of their own.
        assert await asyncio.gather(*(called(calls, port) for _ in range(KEPT + 5))) == [b"ok"] * (KEPT + 5)
        assert sum(seen) == 3 + KEPT + 5
        calls.close()


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async with answering(OK, closes=True) as (port, seen):
        calls = LocalCalls()
        for _ in range(2):
            assert await called(calls, port) == b"ok"
            await asyncio.sleep(0.02)  # The end of the connection has to arrive.
        assert seen == [1, 1]
        calls.close()


async def test_what_is_not_read_to_its_end_ends_the_connection() -> None:
    async with answering(OK) as (port, seen):
        calls = LocalCalls()
        (await calls.post(port, "/x", b"{}", {})).close()
        assert await called(calls, port) == b"ok"
        assert seen == [1, 1]
        calls.close()


async def test_an_informational_answer_is_passed_over() -> None:
    async with answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK) as (port, _):
        calls = LocalCalls()
        assert await called(calls, port) == b"ok"
        calls.close()


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-x\r\n", b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX-Request-Id: r1\r\nContent-Length: 9\r\n\r\nshort"],
    ids=["another protocol", "nothing", "half a head", "half a body"],
)
async def test_an_answer_that_is_none_or_breaks_off_is_no_server(answer: bytes) -> None:
    async with answering(answer) as (port, _):
        with pytest.raises(NoServer):
            await called(LocalCalls(), port)


async def test_nothing_on_the_port_is_no_server_and_silence_is_too_slow() -> None:
    with pytest.raises(NoServer):
        await called(LocalCalls(), 9)
    async with answering(b"ok") as (port, _):  # The rest of an answer never comes.
        with pytest.raises(TooSlow):
            await called(LocalCalls(answer_s=0.05), port)
