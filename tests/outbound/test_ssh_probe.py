"""Trying an SSH port for real."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.outbound.ssh_probe import host_key, ssh_banner
from ledger.kernel.network_guard import NetworkInTransaction, transaction_open
from providers.sandbox.ssh import SshPorts


@asynccontextmanager
async def answering(greeting: bytes, *, hang: bool = False) -> AsyncIterator[int]:
    """A TCP server on loopback that says `greeting` and closes, or keeps the line open."""
    done = asyncio.Event()

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        if hang:
            await done.wait()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        done.set()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("greeting", "ok", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", True, "SSH-2.0-OpenSSH_9.6"),
        (b"welcome\r\nto this host\r\nSSH-2.0-x\r\n", True, "SSH-2.0-x"),
        (b"SSH-2.0-\x1b[31mred\xff" + b"y" * 200 + b"\r\n", True, "SSH-2.0-[31mred"),
        (b"HTTP/1.1 400 Bad Request\r\n", False, "closed without an SSH greeting"),
        (b"", False, "closed without an SSH greeting"),
        (b"line\r\n" * 40, False, "not an SSH server"),
        (b"x" * 5000, False, "no connection (ValueError)"),
    ],
)
async def test_what_answers_is_judged_by_its_greeting(greeting: bytes, ok: bool, says: str) -> None:
    async with answering(greeting) as port:
        found, detail = await ssh_banner("127.0.0.1", port, 5.0)
    assert found is ok
    assert says in detail
    assert detail.isprintable()
    assert len(detail) <= 80


async def test_a_silent_server_is_given_up() -> None:
    async with answering(b"", hang=True) as port:
        assert await ssh_banner("127.0.0.1", port, 0.05) == (False, "no SSH greeting within 0.05 s")


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 1), ("127.0.0.1", 70_000), ("not a host", 22)])
async def test_no_connection_is_an_answer_not_an_error(host: str, port: int) -> None:
    ok, detail = await ssh_banner(host, port, 5.0)
    assert not ok
    assert detail.startswith("no connection")


async def test_nothing_is_probed_inside_a_transaction() -> None:
    with transaction_open(), pytest.raises(NetworkInTransaction):
        await ssh_banner("127.0.0.1", 1, 1.0)


async def test_the_host_key_comes_from_a_key_exchange_and_stays_the_same() -> None:
    doors = SshPorts()
    port = doors.reserve("a")
    await doors.open("a")
    try:
        first = await host_key("127.0.0.1", port, 10.0)
        assert first is not None
        kind, text = first.split(" ")
        assert (kind, b64decode(text)[:15]) == ("ssh-ed25519", b"\0\0\0\x0bssh-ed25519")
        assert await host_key("127.0.0.1", port, 10.0) == first
        assert await host_key("127.0.0.1", port, 10.0, "ssh-ed25519") == first
        assert await host_key("127.0.0.1", port, 10.0, "ssh-rsa") is None  # It has none of that kind.
        assert await host_key("127.0.0.1", port, 10.0, "ssh-dss") is None  # Nobody asks for that kind.
        doors.new_key("a")
        assert await host_key("127.0.0.1", port, 10.0) not in (None, first)
    finally:
        await doors.close_all()


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-x\r\n", b"", b"SSH-2.0-x\r\n\0\0\xff\xff" + b"\x14" * 300, b"x" * 70_000]
)
async def test_a_host_that_offers_no_key_exchange_has_no_key(greeting: bytes) -> None:
    async with answering(greeting) as port:
        assert await host_key("127.0.0.1", port, 10.0) is None
    assert await host_key("127.0.0.1", port, 10.0) is None  # Nobody is there any more.


async def test_a_host_that_greets_and_says_nothing_more_is_given_up() -> None:
    async with answering(b"SSH-2.0-x\r\n", hang=True) as port:
        assert await host_key("127.0.0.1", port, 0.3) is None


async def test_no_key_is_fetched_inside_a_transaction() -> None:
    with transaction_open(), pytest.raises(NetworkInTransaction):
        await host_key("127.0.0.1", 1, 1.0)
