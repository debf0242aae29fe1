"""A proxy between real `serve` processes and PostgreSQL that ends a connection in the middle of a COMMIT.

It reads what a client sends message by message, so that it knows which tables a transaction has written when the
COMMIT comes. A test may aim at the next COMMIT that wrote a certain set of tables.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import asyncpg
from sqlalchemy import make_url

#: What a client says before its messages have types: its version and name, or that it wants to cancel something.
CANCEL = 80_877_102
SOCKET = ".s.PGSQL.5432"
PIECE = 1 << 16
#: `FOR UPDATE` and `DO UPDATE` write no table of that name.
WRITES = re.compile(r"\b(?:INSERT INTO|DELETE FROM|(?<!FOR )(?<!DO )(?<!KEY )UPDATE) +\"?(\w+)")

Tables = frozenset[str]


class Way(StrEnum):
    """What happens to a COMMIT, as the table names it."""

    DROPPED = "COMMIT dropped, backend terminated"
    RACED = "backend terminated while it commits"
    UNANSWERED = "committed, reply lost"


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of a client. `commits` are the tables that a COMMIT makes permanent; None: it is no COMMIT."""

    data: bytes
    commits: Tables | None = None


class ClientStream:
    """Reads what a client sends, piece by piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_begun = False
        self._statements: dict[bytes, Tables] = {}
        self._written: set[str] = set()

    def feed(self, data: bytes) -> list[Piece]:
        """Take some bytes. Returns the messages that are complete now."""
        self._rest += data
        found: list[Piece] = []
        while True:
            head = 1 if self._has_begun else 0
            if len(self._rest) < head + 4:
                return found
            end = head + struct.unpack_from("!i", self._rest, head)[0]
            if len(self._rest) < end:
                return found
            message, self._rest = self._rest[:end], self._rest[end:]
            if head:
                found.append(Piece(message, self._read(message[:1], message[5:])))
            else:
                self._has_begun = struct.unpack_from("!i", message, 4)[0] != CANCEL
                found.append(Piece(message))

    def _read(self, kind: bytes, body: bytes) -> Tables | None:
        if kind == b"P":  # Parse: a statement gets a name.
            name, text, _ = body.split(b"\0", 2)
            self._statements[name] = tables(text)
        elif kind == b"B":  # Bind: a statement is about to be executed.
            self._written |= self._statements.get(body.split(b"\0", 2)[1], frozenset())
        elif kind == b"Q":
            word = body.lstrip()[:8].upper()
            if word.startswith(b"COMMIT"):
                commits, self._written = frozenset(self._written), set()
                return commits
            if word.startswith((b"BEGIN", b"ROLLBACK")):
                self._written = set()
            self._written |= tables(body)
        return None


def tables(statement: bytes) -> Tables:
    """Return the tables that a statement writes."""
    return frozenset(WRITES.findall(statement.decode("utf-8", "replace")))


def backend_of(data: bytes) -> int | None:
    """Return the number of the process that serves a connection, from the server's answer to a log-in."""
    at = 0
    while len(data) >= at + 5:
        if data[at : at + 1] == b"K" and len(data) >= at + 9:
            return int(struct.unpack_from("!i", data, at + 5)[0])
        at += 1 + struct.unpack_from("!i", data, at + 1)[0]
    return None


@dataclass
class CommitCuts:
    """The proxy. `choose` says for each COMMIT that wrote something whether, and how, its connection ends."""

    server: Path
    database: str
    choose: Callable[[Tables], Way | None] = lambda _tables: None
    #: How many COMMITs wrote each set of tables, and what was cut.
    seen: Counter[Tables] = field(default_factory=Counter)
    cut: Counter[tuple[Tables, Way]] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_unix_connection(str(self.server / SOCKET))
        except OSError:  # The server is not there, or recovers.
            writer.transport.abort()
            return
        connection = _Connection(self, reader, writer, *upstream)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(connection.requests())
                both.create_task(connection.replies())
        except* (OSError, EOFError):
            pass  # One side is gone, and the other follows.
        finally:
            for one in (writer, upstream[1]):
                one.transport.abort()

    async def terminate(self, backend: int) -> None:
        """End a backend as an administrator would."""
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            admin = await asyncpg.connect(host=str(self.server), user="postgres", database=self.database)
            try:
                await admin.execute("SELECT pg_terminate_backend($1)", backend)
            finally:
                await admin.close()

    async def close(self) -> None:
        """End every connection."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass
class _Connection:
    cuts: CommitCuts
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    from_server: asyncio.StreamReader
    to_server: asyncio.StreamWriter
    backend: int = 0
    is_muted: bool = False
    _greeting: bytes = b""

    async def requests(self) -> None:
        """Carry what the client says, and stop at a COMMIT that is cut."""
        stream = ClientStream()
        while data := await self.reader.read(PIECE):
            for piece in stream.feed(data):
                way = self._way(piece.commits) if piece.commits else None
                if way is None:
                    self.to_server.write(piece.data)
                else:
                    await self._cut(way, piece.data)
            await self.to_server.drain()
        raise EOFError

    def _way(self, commits: Tables) -> Way | None:
        self.cuts.seen[commits] += 1
        way = self.cuts.choose(commits) if self.backend else None
        if way is not None:
            self.cuts.cut[commits, way] += 1
        return way

    async def _cut(self, way: Way, commit: bytes) -> None:
        if way is Way.UNANSWERED:
            self.is_muted = True
        if way is not Way.DROPPED:
            self.to_server.write(commit)
        if way is not Way.UNANSWERED:
            await self.cuts.terminate(self.backend)

    async def replies(self) -> None:
        """Carry what the server says, unless it is the answer that is to be lost."""
        while data := await self.from_server.read(PIECE):
            if self.is_muted:
                raise EOFError
            if not self.backend:
                self._greeting += data
                self.backend = backend_of(self._greeting) or 0
            self.writer.write(data)
            await self.writer.drain()
        raise EOFError


@asynccontextmanager
async def commit_cuts(db_url: str, folder: Path) -> AsyncIterator[tuple[str, CommitCuts]]:
    """Serve the proxy in a folder of its own. Yields the URL of the database behind it, and the proxy."""
    url = make_url(db_url)
    folder.mkdir()  # noqa: ASYNC240 # One call, in a folder in memory.
    cuts = CommitCuts(Path(str(url.query["host"])), str(url.database))
    server = await asyncio.start_unix_server(cuts.serve, str(folder / SOCKET))
    try:
        yield url.set(query={"host": str(folder)}).render_as_string(hide_password=False), cuts
    finally:
        server.close()
        await cuts.close()
