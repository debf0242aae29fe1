"""Socket Mode in a chaos run: envelopes are repeated or their replies lost, and the platform ends connections.

All of Slack goes through a relay, which may cut the WebSockets as a network does: in the middle, without a word.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from random import Random
from urllib.parse import urlsplit

from bot.practice.model import Json
from bot.practice.socket_mode import NoConnection, SocketHub
from bot.slack.app import NOT_TAKEN
from bot.slack.inbound import key_of

PIECE = 1 << 16
#: The share of envelopes that meet a fault.
RATE = 0.2
ACK_S = 3.0


class SocketFault(StrEnum):
    """What may happen to an envelope or to the connections, as the table names it."""

    REPEATED = "Slack: envelope repeated"
    ACK_LOST = "Slack: acknowledgement lost"
    CUT = "Slack: sockets cut"
    CUT_OVER_ENVELOPE = "Slack: sockets cut over an envelope"
    REFRESHED = "Slack: connections refreshed"
    WARNED = "Slack: end of the connections announced only"


ENVELOPES = (SocketFault.REPEATED, SocketFault.ACK_LOST, SocketFault.CUT_OVER_ENVELOPE)


class Relay:
    """Carries bytes between the processes and the workspace."""

    def __init__(self) -> None:
        self.port = 0
        self._target = 0
        self._sockets: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            first = await reader.read(PIECE)
            back, onward = await asyncio.open_connection("127.0.0.1", self._target)
            onward.write(first)
            if first.startswith(b"GET /socket"):
                self._sockets.add(writer)
            try:
                await asyncio.wait(
                    [asyncio.create_task(_pump(reader, onward)), asyncio.create_task(_pump(back, writer))]
                )
            finally:
                self._sockets.discard(writer)
                onward.transport.abort()
                writer.transport.abort()

    def cut(self) -> None:
        """Cut every WebSocket, without a word to either side."""
        for writer in tuple(self._sockets):
            writer.transport.abort()

    async def close(self) -> None:
        """End every connection."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def relay(slack_url: str) -> AsyncIterator[tuple[str, Relay]]:
    """Serve a relay to the workspace. Yields its own address and the relay."""
    made = Relay()
    made._target = urlsplit(slack_url).port or 80
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{made.port}", made
    finally:
        server.close()
        await made.close()


class FaultySockets(SocketHub):
    """The workspace's side of Socket Mode. `acknowledged` takes the key of each message that the app acknowledged."""

    def __init__(
        self, changed: Callable[[], None], random: Random, counts: Counter[str], acknowledged: dict[str, str]
    ) -> None:
        super().__init__(changed)
        self.rate = RATE
        self.cut: Callable[[], None] = lambda: None
        self._random, self._counts, self._acknowledged = random, counts, acknowledged
        self._repeating: set[asyncio.Task[None]] = set()

    async def send(self, kind: str, payload: Json, *, attempt: int = 0, reason: str = "") -> Json:
        """Send one envelope, with or without a fault, and return the ack's payload. Raises `NoConnection`."""
        fault = self._random.choice(ENVELOPES) if self._random.random() < self.rate else None
        if fault is not None:
            self._counts[fault] += 1
        if fault is SocketFault.CUT_OVER_ENVELOPE:
            sending = asyncio.create_task(self._send(kind, payload, attempt, reason))
            await asyncio.sleep(self._random.uniform(0.0, 0.05))
            self.cut()
            return await sending
        answer = await self._send(kind, payload, attempt, reason)
        if fault is SocketFault.REPEATED:
            task = asyncio.create_task(self._repeat(kind, payload, attempt + 1))
            self._repeating.add(task)
            task.add_done_callback(self._repeating.discard)
        if fault is SocketFault.ACK_LOST:
            raise NoConnection("the acknowledgement was lost")
        return answer

    async def _repeat(self, kind: str, payload: Json, attempt: int) -> None:
        """Send it once more. Nobody reads the answer, and there may be no connection or an app that is paused."""
        with suppress(NoConnection, TimeoutError):
            async with asyncio.timeout(ACK_S):
                await self._send(kind, payload, attempt, "timeout")

    async def _send(self, kind: str, payload: Json, attempt: int, reason: str) -> Json:
        answer = await super().send(kind, payload, attempt=attempt, reason=reason)
        if answer.get("text") not in NOT_TAKEN:
            self._acknowledged[key_of(payload, None)] = f"{payload} → {answer}"
        return answer

    async def disturb(self) -> None:
        """End every connection in one of the ways that Slack and networks have."""
        fault = self._random.choice((SocketFault.CUT, SocketFault.REFRESHED, SocketFault.WARNED))
        self._counts[fault] += 1
        if fault is SocketFault.CUT:
            self.cut()
        elif fault is SocketFault.REFRESHED:
            await self.refresh()
        else:
            for connection in tuple(self._connections):
                with suppress(RuntimeError):
                    await connection.socket.send_text(json.dumps({"type": "disconnect", "reason": "warning"}))
