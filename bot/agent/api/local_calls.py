"""Make HTTP calls to a server on this machine, over connections that are kept: h11, and nothing above it.

h11 speaks for the API's own server already. A whole HTTP client would be a third of the libraries that the first start
has to compile, and would hold their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import h11

CONNECT_S, ANSWER_S = 2.0, 600.0
#: So many connections are kept, and so many bytes are read at once.
KEPT, PIECE = 64, 65_536


class NoServer(Exception):
    """Nothing answers there, or what answers does not speak HTTP."""


class TooSlow(Exception):
    """The answer did not come in time."""


@dataclass
class LocalConnection:
    """One connection to the server, for one call after another."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: The most seconds for which nothing of an answer may come.
    answer_s: float
    protocol: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    _late: bool = False

    async def event(self) -> Any:
        """Return the next part of the answer. Raises `NoServer` where it breaks off, `TooSlow` where none came."""
        try:
            while (event := self.protocol.next_event()) is h11.NEED_DATA:
                # A task for each read would cost more than the read.
                ending = asyncio.get_running_loop().call_later(self.answer_s, self._end_late)
                try:
                    self.protocol.receive_data(await self.reader.read(PIECE))
                finally:
                    ending.cancel()
        except (OSError, h11.ProtocolError) as error:
            raise (TooSlow if self._late else NoServer)(str(error)) from None
        return event

    def _end_late(self) -> None:
        self._late = True
        self.close()

    async def send(self, *events: Any) -> None:
        """Write the parts of a call, at once."""
        self.writer.write(b"".join(self.protocol.send(event) or b"" for event in events))
        await self.writer.drain()

    def is_open(self) -> bool:
        """Whether the server has not closed it while nobody used it."""
        return not self.reader.at_eof() and not self.writer.is_closing()

    def close(self) -> None:
        """End it at once."""
        self.writer.transport.abort()


@dataclass
class Answer:
    """The head of an answer, and its body as it comes. Close it, whether or not all of it was read."""

    status: int
    headers: Mapping[str, str]
    calls: LocalCalls
    port: int
    connection: LocalConnection

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises as `LocalConnection.event` where it breaks off."""
        while isinstance(event := await self.connection.event(), h11.Data):
            yield bytes(event.data)

    def close(self) -> None:
        """Keep the connection for the next call if the answer is read to its end; else end the server's work."""
        protocol = self.connection.protocol
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
            self.calls.keep(self.port, self.connection)
        else:
            self.connection.close()


@dataclass
class LocalCalls:
    """The calls to servers on this machine, and the connections that are kept for the next ones."""

    answer_s: float = ANSWER_S
    _kept: dict[int, list[LocalConnection]] = field(default_factory=dict)

    async def post(self, port: int, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a POST, and return when the head of its answer came. Raises `NoServer` or `TooSlow`."""
        said = [("Host", f"127.0.0.1:{port}"), ("Content-Length", str(len(body))), *headers.items()]
        request = h11.Request(method="POST", target=path, headers=said)
        connection = self._free(port) or await self._connected(port)
        try:
            await connection.send(request, h11.Data(data=body), h11.EndOfMessage())
            head = await connection.event()
            while isinstance(head, h11.InformationalResponse):
                head = await connection.event()
            if not isinstance(head, h11.Response):
                raise NoServer("the connection ended before an answer")
        except OSError as error:
            connection.close()
            raise NoServer(str(error)) from None
        except BaseException:
            connection.close()
            raise
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Answer(head.status_code, found, self, port, connection)

    def keep(self, port: int, connection: LocalConnection) -> None:
        """Keep a connection for the next call, unless there are many."""
        kept = self._kept.setdefault(port, [])
        if len(kept) < KEPT and connection.is_open():
            kept.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """End every connection that is kept."""
        for kept in self._kept.values():
            for connection in kept:
                connection.close()
        self._kept.clear()

    def _free(self, port: int) -> LocalConnection | None:
        kept = self._kept.get(port, [])
        while kept:
            connection = kept.pop()
            if connection.is_open():
                return connection
            connection.close()
        return None

    async def _connected(self, port: int) -> LocalConnection:
        try:
            opened = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_S)
        except (OSError, asyncio.TimeoutError) as error:
            raise NoServer(str(error)) from None
        return LocalConnection(*opened, self.answer_s)
