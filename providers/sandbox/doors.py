"""Real SSH ports on 127.0.0.1: what a sandbox instance answers on while it is reachable."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

HOST = "127.0.0.1"
BANNER = b"SSH-2.0-OpenSSH_9.6 sandbox\r\n"


class SshDoors:
    """Real TCP ports on 127.0.0.1 that greet like an SSH server while their instance is reachable."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._writers: dict[str, set[asyncio.StreamWriter]] = {}

    def reserve(self, key: str) -> int:
        """The port of `key`, bound but refusing connections until `open`. The same until `close`."""
        if key not in self._sockets:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.bind((HOST, 0))
            sock.setblocking(False)
            self._sockets[key] = sock
        return int(self._sockets[key].getsockname()[1])

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
                await reader.read(1024)
            except ConnectionError:
                pass
            finally:
                writers.discard(writer)
                writer.close()

        self._servers[key] = await asyncio.start_server(greet, sock=self._sockets[key])

    async def close(self, key: str) -> None:
        """Stop answering and give the port up; open connections are cut."""
        server = self._servers.pop(key, None)
        if server is not None:
            server.close()
        for writer in self._writers.pop(key, set()).copy():
            writer.close()
        sock = self._sockets.pop(key, None)
        if sock is not None:
            sock.close()

    async def match(self, prefix: str, wanted: Iterable[str]) -> None:
        """Answer on exactly `wanted` among the keys that start with `prefix`."""
        wanted = set(wanted)
        for key in [k for k in self._servers if k.startswith(prefix) and k not in wanted]:
            await self.close(key)
        for key in wanted:
            await self.open(key)

    async def close_all(self, prefix: str = "") -> None:
        """Every port whose key starts with `prefix`."""
        for key in [k for k in self._sockets if k.startswith(prefix)]:
            await self.close(key)

    @property
    def answering(self) -> frozenset[str]:
        """The keys that answer now."""
        return frozenset(self._servers)
