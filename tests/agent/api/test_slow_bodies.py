"""Bodies that trickle: refused after a while, the connection closed, with no memory and no thread kept for them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from bot.agent.api import bodies, protocol
from bot.agent.api.app import Api
from tests.agent.api.conftest import TOKEN

#: What the tests wait for in place of a minute and of fifteen seconds.
WINDOW_S, REST_S = 0.4, 0.3
DIGEST = hashlib.sha256(b"never").hexdigest()
CALLS = [
    f"files/upload?path=slow.bin&size=1000000&sha256={DIGEST}",
    "ml/command",
    "llm/chat",
]


@pytest.fixture
async def port(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The API as the agent serves it, without TLS, with short patience."""
    monkeypatch.setattr(bodies, "WINDOW_S", WINDOW_S)
    monkeypatch.setattr(protocol, "HEAD_S", REST_S)
    config = uvicorn.Config(
        api.app(), port=0, http=protocol.ImpatientProtocol, ws="none", log_config=None, log_level="error"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 # uvicorn has no event for it.
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


def head(call: str, length: int = 1_000_000) -> bytes:
    lines = [f"POST /node/v1/{call} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def trickles(port: int, call: str) -> tuple[int, str]:
    """Send a byte at a time until the connection is closed; return the status and the reason that was answered."""
    async with connected(port) as (reader, writer), asyncio.timeout(20):
        writer.write(head(call))
        answered = asyncio.create_task(answer_of(reader))
        while not writer.is_closing() and not (answered.done() and reader.at_eof()):
            with contextlib.suppress(ConnectionError):
                writer.write(b" ")
                await writer.drain()
            await asyncio.sleep(0.02)
        return await answered


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, str]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
    (length,) = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
    return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))["detail"]


@pytest.mark.parametrize("call", CALLS)
async def test_a_body_that_trickles_is_refused_and_its_connection_closed(port: int, call: str) -> None:
    before = threading.active_count()
    status, reason = await trickles(port, call)
    assert (status, reason[:29]) == (408, "Less than 64 KiB came within ")
    assert threading.active_count() <= before + 1  # asyncio keeps one for work that ended.


async def test_many_of_them_keep_nothing_and_hold_nobody_up(api: Api, port: int) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(trickles(port, CALLS[number % 3])) for number in range(30)]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/node/v1", trust_env=False) as caller:
            for _ in range(5):
                reply = await caller.get("status", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10)
                assert reply.status_code == 200
    said = [one.result()[0] for one in tasks]
    assert set(said) <= {408, 409}  # Only one call at a time writes to the same upload.
    assert said.count(408) >= 20
    assert (bodies._held_bytes, api.room._coming) == (0, [])
    assert sum(one.stat().st_size for one in api.workspace.root.rglob("*") if one.is_file()) < 100_000


async def test_a_slow_caller_who_sends_enough_is_no_slow_caller(port: int) -> None:
    """It takes longer than the whole window, and each window brings enough."""
    content = bytes(6 * bodies.LEAST_BYTES)
    call = f"files/upload?path=a&size={len(content)}&sha256={hashlib.sha256(content).hexdigest()}"
    async with connected(port) as (reader, writer), asyncio.timeout(20):
        writer.write(head(call, len(content)))
        for _ in range(6):
            writer.write(bytes(bodies.LEAST_BYTES))
            await writer.drain()
            await asyncio.sleep(WINDOW_S / 4)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_the_rest_of_a_refused_body_may_not_trickle_either(port: int) -> None:
    status, _ = await trickles(port, "files/upload?path=..&size=1000000&sha256=0")
    assert status == 400


async def test_the_rest_of_a_refused_body_that_comes_leaves_the_connection_open(port: int) -> None:
    async with connected(port) as (reader, writer), asyncio.timeout(20):
        writer.write(head("files/upload?path=..&size=9&sha256=0", 9) + b"1234")
        assert (await answer_of(reader))[0] == 400
        writer.write(b"56789" + head("ml/command", 2) + b"{}")
        status, reason = await answer_of(reader)
        assert (status, "id must be" in reason) == (400, True)


async def test_bodies_in_memory_have_a_limit_together(
    caller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    monkeypatch.setattr(bodies, "MOST_HELD_BYTES", 100_000)
    reply = await caller.post("llm/chat", content=b" " * 200_000)
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "5")
    assert bodies._held_bytes == 0
    assert Path(api.folder).is_dir()
