"""Real SSH ports on 127.0.0.1: what a sandbox instance answers on while it is reachable, and who may log in there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from providers.sandbox.machines import Flaw, SandboxMachine

HOST = "127.0.0.1"
#: Characters of a program that are read at most; none of them is run.
STDIN_MAX = 65_536
#: Between two looks at a log that somebody follows.
FOLLOW_S = 0.05
BANNER = b"SSH-2.0-OpenSSH_9.6 sandbox\r\n"


class SshPorts:
    """Real TCP ports on 127.0.0.1 that greet like an SSH server while their instance is reachable."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._writers: dict[str, set[asyncio.StreamWriter]] = {}
        self._host_keys: dict[str, Any] = {}
        self._machines: dict[str, SandboxMachine] = {}

    def reserve(self, key: str) -> int:
        """The port of `key`, bound but refusing connections until `open`. The same until `close`."""
        if key not in self._sockets:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.bind((HOST, 0))
            sock.setblocking(False)
            self._sockets[key] = sock
        return int(self._sockets[key].getsockname()[1])

    def hand_over(self, key: str) -> int:
        """A file descriptor of the port of `key`, for the process that answers there; who gets it closes it."""
        self.reserve(key)
        return os.dup(self._sockets[key].fileno())

    async def open(self, key: str) -> None:
        """Start answering on the port of `key`; does nothing when it already does."""
        if key in self._servers:
            return
        self.reserve(key)
        writers = self._writers.setdefault(key, set())

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            try:
                writer.write(BANNER)
                await writer.drain()
                said = await reader.read(1024)
                if said.startswith(b"SSH-2.0-"):
                    await self._go_on(key, said, reader, writer)
            except ConnectionError:
                pass
            finally:
                writers.discard(writer)
                writer.close()

        self._servers[key] = await asyncio.start_server(greet, sock=self._sockets[key])

    def machine_at(self, port: int) -> SandboxMachine | None:
        """The machine whose SSH server answers on a port now."""
        for key in self._servers:
            if self._sockets[key].getsockname()[1] == port:
                return self._machines.get(key)
        return None

    def machine(self, key: str) -> SandboxMachine | None:
        """The machine behind the port of `key` while it answers."""
        return self._machines.get(key) if key in self._servers else None

    def new_key(self, key: str) -> None:
        """Make another host key for the port of `key`, as a machine does whose disk was wiped."""
        self._host_keys.pop(key, None)

    async def _go_on(self, key: str, said: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What follows the greeting: a key exchange with the port's own host key, and a login to its machine, if any.

        The SSH server is made for who speaks SSH only: most connections want the greeting, and making one takes 5 ms.
        """
        import asyncssh  # noqa: PLC0415 # Heavy, and most sandboxes never need it.

        machine = self._machines.get(key)
        if machine is not None and Flaw.NEW_HOST_KEY in machine.flaws:
            self.new_key(key)
        host_key = self._host_keys.setdefault(key, asyncssh.generate_private_key("ssh-ed25519"))
        ours, theirs = socket.socketpair()
        inner_reader, inner_writer = await asyncio.open_connection(sock=ours)
        server = asyncio.create_task(_serve(theirs, host_key, machine))
        await inner_reader.readline()  # The greeting, which was said already.
        inner_writer.write(said)
        back = asyncio.create_task(_copy(inner_reader, writer))
        try:
            await _copy(reader, inner_writer)
        finally:
            inner_writer.close()
            server.cancel()
            await asyncio.gather(back, server, return_exceptions=True)

    async def close(self, key: str) -> None:
        """Stop answering and give the port up; open connections are cut."""
        self._machines.pop(key, None)
        server = self._servers.pop(key, None)
        if server is not None:
            server.close()
        for writer in self._writers.pop(key, set()).copy():
            writer.close()
        sock = self._sockets.pop(key, None)
        if sock is not None:
            sock.close()

    async def match(self, prefix: str, wanted: Mapping[str, Callable[[], SandboxMachine | None]]) -> None:
        """Answer on exactly `wanted` among the keys that start with `prefix`; each makes its machine as it opens."""
        for key in [k for k in self._servers if k.startswith(prefix) and k not in wanted]:
            await self.close(key)
        for key, make in wanted.items():
            if key not in self._servers:
                machine = make()
                if machine is not None:
                    self._machines[key] = machine
                await self.open(key)

    async def close_all(self, prefix: str = "") -> None:
        for key in [k for k in self._sockets if k.startswith(prefix)]:
            await self.close(key)

    @property
    def answering(self) -> frozenset[str]:
        return frozenset(self._servers)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()


async def _serve(sock: socket.socket, host_key: Any, machine: SandboxMachine | None) -> None:
    import asyncssh  # noqa: PLC0415 # As above.

    class Login(asyncssh.SSHServer):
        """Lets in whom the machine lets in."""

        user = ""

        def begin_auth(self, username: str) -> bool:
            self.user = username
            return True

        def public_key_auth_supported(self) -> bool:
            return machine is not None

        def validate_public_key(self, _username: str, key: Any) -> bool:
            shown = key.export_public_key("openssh").decode()
            return machine is not None and machine.lets_in(self.user, shown)

    async def answer(process: Any) -> None:
        stdin = await process.stdin.read(STDIN_MAX)
        if machine is not None and (more := machine.followed(process.command or "")) is not None:
            while not process.channel.is_closing():
                process.stdout.write(more())
                await asyncio.sleep(FOLLOW_S)
            return
        status, text = machine.run(process.command or "", stdin) if machine is not None else (1, "")
        process.stdout.write(text)
        process.exit(status)

    await asyncssh.run_server(
        sock,
        server_factory=Login,
        process_factory=answer,
        server_host_keys=[host_key],
        server_version=BANNER.decode().strip().removeprefix("SSH-2.0-"),
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        agent_forwarding=False,
        allow_scp=False,
        allow_pty=False,
        config=None,
    )
