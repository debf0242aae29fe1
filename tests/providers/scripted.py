"""A server that plays a script of raw answers, for what no sandbox would ever say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

HALF = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"done":true'
FINE = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"done":true}'
NOT_JSON = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
DROP = b""
HANG = b"hang"
#: The fine answer, whose body comes one byte every 50 ms.
DRIP, DRIP_S = b"drip", 0.05


def status(code: int, extra: str = "") -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Length: 0\r\n{extra}\r\n".encode()


@dataclass
class Scripted:
    """A server that plays one answer per request and then repeats the last."""

    script: list[bytes]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append(head)
                self.arrived.set()
                answer = self.script[min(len(self.requests), len(self.script)) - 1]
                if answer == HANG:
                    await self.release.wait()
                if answer == DRIP:
                    await self._drip(writer)
                    continue
                writer.write(answer)
                await writer.drain()
                if answer in {DROP, HALF, HANG}:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        writer.write(FINE[:-13])
        for byte in FINE[-13:]:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(DRIP_S)


def answer(body: Any, code: int = 200) -> bytes:
    """A JSON answer."""
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


@asynccontextmanager
async def playing(*script: bytes) -> AsyncIterator[Scripted]:
    """The script on a port of 127.0.0.1."""
    played = Scripted(list(script))
    server = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    played.port = server.sockets[0].getsockname()[1]
    try:
        yield played
    finally:
        played.release.set()
        server.close()
        await server.wait_closed()
