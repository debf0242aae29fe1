"""Log in to a machine over SSH with a key, accept only the host key that is known, and run or follow one command."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bot.outbound.ssh_probe import EXCHANGES, load_library, signatures
from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.network_guard import forbid_in_transaction

#: Bytes of output that are read at most; the host is not ours, and may send without end.
OUTPUT_MAX = 65_536
#: Between two questions whether the machine is still there; three without an answer end the connection.
KEEPALIVE_S = 15


@dataclass(frozen=True, slots=True)
class SshLogin:
    """Say where to log in, as whom and with which key. `host_key` is the OpenSSH line that the server has to prove."""

    host: str
    port: int
    user: str
    host_key: str | None
    key: Ed25519PrivateKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ran:
    """Hold what a command printed (both streams) and its exit status, or the problem that kept it from ending."""

    output: str = ""
    status: int | None = None
    problem: LoginProblem | None = None


async def run(login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
    """Log in and run one command within `timeout_s`. Never raises for what the host or the network does.

    Without a known host key nothing is sent: a login to an unknown server would prove nothing about the machine.
    """
    forbid_in_transaction("ssh")
    if login.host_key is None:
        return Ran(problem=LoginProblem.UNREACHABLE)
    asyncssh = await asyncio.to_thread(load_library)
    is_in = asyncio.Event()
    try:
        async with asyncio.timeout(timeout_s):
            return await _session(asyncssh, login, command, stdin, is_in)
    except Exception as error:
        if (problem := _problem(asyncssh, error, is_in=is_in.is_set())) is None:
            raise
        return Ran(problem=problem)


async def _session(asyncssh: Any, login: SshLogin, command: str, stdin: str, is_in: asyncio.Event) -> Ran:
    async with _connecting(asyncssh, login) as connection:
        is_in.set()
        async with connection.create_process(command, stderr=asyncssh.STDOUT, encoding=None) as process:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(stdin.encode())
                process.stdin.write_eof()
            output = await _read(process.stdout)
            if len(output) < OUTPUT_MAX:
                await process.wait_closed()
            return Ran(output.decode("utf-8", "replace"), process.exit_status)


def _connecting(asyncssh: Any, login: SshLogin) -> Any:
    known = asyncssh.import_public_key(login.host_key)
    pem = login.key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return asyncssh.connect(
        login.host,
        login.port,
        username=login.user,
        client_keys=[asyncssh.import_private_key(pem)],
        known_hosts=([known], [], []),
        # A server with several keys has to show the one that is known.
        server_host_key_algs=signatures((login.host_key or "").partition(" ")[0]),
        kex_algs=list(EXCHANGES),
        compression_algs=None,
        preferred_auth="publickey",
        agent_path=None,
        config=None,
        # Only a followed command lasts long enough for this: a machine that is gone says nothing.
        keepalive_interval=KEEPALIVE_S,
    )


@dataclass
class Followed:
    """A command that still runs on a machine; its caller closes it."""

    _connection: Any
    _process: Any
    _broken: type[Exception]

    async def read(self, timeout_s: float) -> bytes | None:
        """Return what the command printed next: empty where that is nothing within `timeout_s`, None at its end."""
        try:
            async with asyncio.timeout(timeout_s):
                piece: bytes = await self._process.stdout.read(OUTPUT_MAX)
        except TimeoutError:
            return b""
        except (self._broken, OSError):
            return None
        return piece or None

    async def close(self) -> None:
        """End the command and the connection; what the machine makes of that is not waited for."""
        self._process.close()
        self._connection.abort()


async def follow(login: SshLogin, command: str, *, timeout_s: float) -> Followed | LoginProblem:
    """Log in, start a command within `timeout_s` and return it while it runs, or the problem that there was.

    Never raises for what the host or the network does. Output is read only as fast as it is asked for.
    """
    forbid_in_transaction("ssh")
    if login.host_key is None:
        return LoginProblem.UNREACHABLE
    asyncssh = await asyncio.to_thread(load_library)
    is_in, opened = asyncio.Event(), None
    try:
        async with asyncio.timeout(timeout_s):
            opened = await _connecting(asyncssh, login)
            is_in.set()
            process = await opened.create_process(
                command, stderr=asyncssh.STDOUT, stdin=asyncssh.DEVNULL, encoding=None
            )
            return Followed(opened, process, asyncssh.Error)
    except BaseException as error:
        if opened is not None:
            opened.abort()
        if (problem := _problem(asyncssh, error, is_in=is_in.is_set())) is None:
            raise
        return problem


def _problem(asyncssh: Any, error: BaseException, *, is_in: bool) -> LoginProblem | None:
    """Return what a login's error says about the machine; None for one that is no matter of the machine's."""
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return LoginProblem.WRONG_HOST_KEY
    if isinstance(error, asyncssh.PermissionDenied):
        return LoginProblem.REFUSED
    if isinstance(error, (asyncssh.Error, OSError, ValueError, OverflowError)):  # A time-out is an OSError, too.
        return LoginProblem.NO_ANSWER if is_in else LoginProblem.UNREACHABLE
    return None


async def _read(stream: Any) -> bytes:
    pieces, size = [], 0
    while size < OUTPUT_MAX and (piece := await stream.read(OUTPUT_MAX - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
