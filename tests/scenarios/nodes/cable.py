"""A TCP connection to a server that can be cut and mended, as a network that is down and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Cable:
    """What is sent to `url` arrives at `target`, unless it is cut: then connections break, and new ones are refused."""

    target: str = ""
    port: int = 0
    _server: asyncio.Server | None = None
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Its own end."""
        return f"http://127.0.0.1:{self.port}"

    async def mend(self) -> None:
        """Let calls through, on the same port as before."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break every connection, and take no new one."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a server's callback is a task")
        self._running.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                address = urlsplit(self.target)
                back, there = await asyncio.open_connection(address.hostname, address.port)
                await asyncio.gather(_copy(reader, there), _copy(back, writer))
        finally:
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()
            self._running.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(1 << 16):
        writer.write(block)
        await writer.drain()
    writer.write_eof()


@asynccontextmanager
async def cable() -> AsyncIterator[Cable]:
    """A cable that is whole at first and leads nowhere yet."""
    made = Cable()
    await made.mend()
    try:
        yield made
    finally:
        await made.cut()
