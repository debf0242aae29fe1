"""Logging in to real SSH servers: whose key is accepted, which server is believed, and what a command may cost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.outbound import ssh_login
from bot.outbound.ssh_login import OUTPUT_MAX, Followed, Ran, SshLogin
from bot.outbound.ssh_probe import host_key
from bot.rules.instances.gpu_check import COMMANDS
from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.network_guard import NetworkInTransaction, transaction_open
from providers.images import Vendor
from providers.sandbox.machines import Flaw, SandboxMachine
from providers.sandbox.ssh import SshPorts

OURS, OTHERS = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
ASK = COMMANDS[Vendor.NVIDIA]


def line(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def machine(*flaws: Flaw) -> SandboxMachine:
    return SandboxMachine("RTX4090", 2, frozenset({line(OURS)}), flaws=frozenset(flaws))


@pytest.fixture
async def ports() -> AsyncIterator[SshPorts]:
    built = SshPorts()
    yield built
    await built.close_all()


async def opened(ports: SshPorts, *flaws: Flaw) -> SshLogin:
    """A port with a machine behind it, and a login to it with its own host key."""
    await ports.match("", {"one": lambda: machine(*flaws)})
    port = ports.reserve("one")
    return SshLogin("127.0.0.1", port, "root", await host_key("127.0.0.1", port, 5.0), OURS)


async def run(login: SshLogin, command: str = ASK, **changes: Any) -> Ran:
    return await ssh_login.run(replace(login, **changes), command, timeout_s=5.0)


async def test_a_command_runs_and_says_what_the_machine_itself_says(ports: SshPorts) -> None:
    """The fast tests ask the machine without SSH, so both must answer the same."""
    login = await opened(ports)
    status, text = machine().run(ASK)
    assert await run(login) == Ran(text, status)
    assert await run(login, "rm -rf /") == Ran("sh: 1: rm: not found\n", 127)
    at = ports.machine_at(login.port)
    assert at is not None
    assert (at.run(ASK), ports.machine_at(1)) == ((status, text), None)


async def test_only_the_right_key_as_the_right_user_is_let_in(ports: SshPorts) -> None:
    login = await opened(ports)
    assert await run(login, key=OTHERS) == Ran(problem=LoginProblem.REFUSED)
    assert await run(login, user="ubuntu") == Ran(problem=LoginProblem.REFUSED)


async def test_a_server_without_a_machine_lets_nobody_in(ports: SshPorts) -> None:
    await ports.open("one")
    port = ports.reserve("one")
    login = SshLogin("127.0.0.1", port, "root", await host_key("127.0.0.1", port, 5.0), OURS)
    assert await run(login) == Ran(problem=LoginProblem.REFUSED)


async def test_another_host_key_is_never_accepted(ports: SshPorts) -> None:
    login = await opened(ports)
    assert await run(login, host_key=line(OTHERS)) == Ran(problem=LoginProblem.WRONG_HOST_KEY)
    # Without a known key nothing is sent at all.
    assert await run(login, host_key=None) == Ran(problem=LoginProblem.UNREACHABLE)


async def test_a_machine_that_shows_another_key_at_each_connection(ports: SshPorts) -> None:
    assert await run(await opened(ports, Flaw.NEW_HOST_KEY)) == Ran(problem=LoginProblem.WRONG_HOST_KEY)


async def test_nobody_there_and_what_is_no_ssh_server_is_unreachable(ports: SshPorts) -> None:
    login = await opened(ports)

    async def chatter(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        writer.close()

    server = await asyncio.start_server(chatter, "127.0.0.1", 0)
    async with server:
        assert (await run(login, port=server.sockets[0].getsockname()[1])).problem is LoginProblem.UNREACHABLE
    await ports.close_all()
    assert (await run(login)).problem is LoginProblem.UNREACHABLE
    assert (await run(login, port=70_000)).problem is LoginProblem.UNREACHABLE
    assert (await run(login, host_key="ssh-ed25519 AAAA")).problem is LoginProblem.UNREACHABLE


@asynccontextmanager
async def answering(answer: Callable[[Any], Awaitable[None]]) -> AsyncIterator[SshLogin]:
    """An SSH server that lets our key in and answers every command so."""
    import asyncssh  # noqa: PLC0415 # Heavy, and only these tests need a server of their own.

    host = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.create_server(
        asyncssh.SSHServer,
        "127.0.0.1",
        0,
        server_host_keys=[host],
        authorized_client_keys=asyncssh.import_authorized_keys(line(OURS)),
        process_factory=answer,
        encoding=None,
        config=None,
    )
    shown = host.export_public_key("openssh").decode()
    try:
        yield SshLogin("127.0.0.1", server.sockets[0].getsockname()[1], "root", shown, OURS)
    finally:
        server.close()
        await server.wait_closed()


async def test_what_is_sent_arrives_and_both_streams_come_back() -> None:
    async def echo(process: Any) -> None:
        process.stdout.write(b"out: " + await process.stdin.read())
        process.stderr.write(b" err\xff")
        process.exit(3)

    async with answering(echo) as login:
        ran = await ssh_login.run(login, "python3 -", stdin="print(1)", timeout_s=5.0)
    assert (ran.status, ran.problem) == (3, None)
    assert "out: print(1)" in ran.output
    assert " err" in ran.output


async def test_a_flood_is_read_to_its_bound_only() -> None:
    async def flood(process: Any) -> None:
        with contextlib.suppress(OSError):
            while True:
                process.stdout.write(b"x" * 65_536)
                await process.stdout.drain()

    async with answering(flood) as login:
        ran = await ssh_login.run(login, "nvidia-smi", timeout_s=5.0)
    assert (len(ran.output), ran.problem) == (OUTPUT_MAX, None)


async def test_a_command_that_hangs_is_given_up() -> None:
    gone = asyncio.Event()

    async def hang(process: Any) -> None:
        await gone.wait()
        process.exit(0)

    async with answering(hang) as login:
        assert await ssh_login.run(login, "nvidia-smi", timeout_s=0.3) == Ran(problem=LoginProblem.NO_ANSWER)
        gone.set()


async def test_a_followed_command_is_read_as_it_prints_until_it_ends() -> None:
    goes_on = asyncio.Event()

    async def grow(process: Any) -> None:
        process.stdout.write(b"one\n")
        await goes_on.wait()
        process.stdout.write(b"two\n")
        process.exit(0)

    async with answering(grow) as login:
        followed = await ssh_login.follow(login, "tail -F log", timeout_s=5.0)
        assert isinstance(followed, Followed)
        assert await followed.read(5.0) == b"one\n"
        assert await followed.read(0.05) == b""
        goes_on.set()
        assert [await followed.read(5.0), await followed.read(5.0)] == [b"two\n", None]
        await followed.close()


async def test_who_stops_following_ends_the_command_and_a_cut_connection_ends_it_too() -> None:
    ended = asyncio.Event()

    async def wait(process: Any) -> None:
        process.stdout.write(b"one\n")
        try:
            await process.channel.wait_closed()
        finally:
            ended.set()

    async with answering(wait) as login:
        followed = await ssh_login.follow(login, "tail -F log", timeout_s=5.0)
        assert isinstance(followed, Followed)
        assert await followed.read(5.0) == b"one\n"
        await followed.close()
        await asyncio.wait_for(ended.wait(), 5)
        assert await followed.read(5.0) is None


async def test_a_login_to_follow_fails_as_every_login_does(ports: SshPorts) -> None:
    login = await opened(ports)

    async def problem(**changes: Any) -> object:
        return await ssh_login.follow(replace(login, **changes), "tail -F log", timeout_s=5.0)

    assert await problem(key=OTHERS) is LoginProblem.REFUSED
    assert await problem(host_key=line(OTHERS)) is LoginProblem.WRONG_HOST_KEY
    assert await problem(host_key=None) is LoginProblem.UNREACHABLE
    assert await problem(port=70_000) is LoginProblem.UNREACHABLE

    async def never(_process: Any) -> None:
        raise AssertionError

    async with answering(never) as other:
        task = asyncio.ensure_future(ssh_login.follow(other, "tail -F log", timeout_s=60.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_nobody_logs_in_inside_a_transaction() -> None:
    with transaction_open(), pytest.raises(NetworkInTransaction):
        await ssh_login.run(SshLogin("127.0.0.1", 1, "root", None, OURS), "true", timeout_s=1.0)
