"""Serve Socket Mode: the app's WebSockets, and envelopes that are sent to one of them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.practice.model import APP_ID, Json

CONNECTIONS_MAX: Final = 10
CONNECTION_TIME_S: Final = 3600


class NoConnection(RuntimeError):
    """The app has no WebSocket open, so nothing can be delivered."""


@dataclass(slots=True, eq=False)
class _Connection:
    socket: WebSocket
    number: int
    delivered: int = 0
    pending: dict[str, asyncio.Future[Json]] = field(default_factory=dict)


class SocketHub:
    """Hold every open WebSocket of the app. Use it from the event loop that serves the workspace."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._connections: list[_Connection] = []
        self._turn = 0
        self.opened = 0

    @property
    def count(self) -> int:
        """Count the open connections."""
        return len(self._connections)

    @property
    def delivered(self) -> list[int]:
        """Return how many envelopes each open connection has received."""
        return [connection.delivered for connection in self._connections]

    async def serve(self, socket: WebSocket) -> None:
        """Greet one connection and read its acks until it closes."""
        await socket.accept()
        if len(self._connections) >= CONNECTIONS_MAX:
            await self._say_goodbye(socket, "too_many_websockets")
            return
        self.opened += 1
        connection = _Connection(socket, self.opened)
        self._connections.append(connection)
        hello = {
            "type": "hello",
            "num_connections": len(self._connections),
            "connection_info": {"app_id": APP_ID},
            "debug_info": {"host": "practice", "approximate_connection_time": CONNECTION_TIME_S},
        }
        try:
            await socket.send_text(json.dumps(hello))
            self._changed()
            while True:
                _take_ack(connection, await socket.receive_text())
        except (WebSocketDisconnect, RuntimeError):
            # Starlette says RuntimeError when the connection was closed from our side while it was being read.
            pass
        finally:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._changed()
        for waiting in connection.pending.values():
            if not waiting.done():
                waiting.set_exception(NoConnection("the connection closed before the app acknowledged"))

    async def send(self, kind: str, payload: Json, *, attempt: int = 0, reason: str = "") -> Json:
        """Send one envelope to one connection, each in turn, and return the ack's payload. Raises `NoConnection`.

        It waits without a limit; the caller sets one.
        """
        if not self._connections:
            raise NoConnection("the app has no Socket Mode connection open")
        connection = self._connections[self._turn % len(self._connections)]
        self._turn += 1
        connection.delivered += 1
        envelope_id = secrets.token_hex(16)
        envelope: Json = {
            "envelope_id": envelope_id,
            "type": kind,
            "payload": payload,
            "accepts_response_payload": kind != "events_api",
        }
        if kind == "events_api":
            envelope |= {"retry_attempt": attempt, "retry_reason": reason}
        acked: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        connection.pending[envelope_id] = acked
        try:
            await connection.socket.send_text(json.dumps(envelope))
            return await acked
        finally:
            connection.pending.pop(envelope_id, None)

    async def refresh(self) -> None:
        """Announce and then end every connection, as the platform does about once an hour."""
        for connection in tuple(self._connections):
            with suppress(RuntimeError, WebSocketDisconnect):
                await connection.socket.send_text(json.dumps({"type": "disconnect", "reason": "warning"}))
                await self._say_goodbye(connection.socket, "refresh_requested")
            self._drop(connection)

    async def _say_goodbye(self, socket: WebSocket, reason: str) -> None:
        goodbye = {"type": "disconnect", "reason": reason, "debug_info": {"host": "practice"}}
        await socket.send_text(json.dumps(goodbye))
        await socket.close()


def _take_ack(connection: _Connection, text: str) -> None:
    try:
        ack = json.loads(text)
    except ValueError:
        return
    if not isinstance(ack, Mapping):
        return
    waiting = connection.pending.get(str(ack.get("envelope_id")))
    if waiting is not None and not waiting.done():
        payload = ack.get("payload")
        waiting.set_result(dict(payload) if isinstance(payload, Mapping) else {})
