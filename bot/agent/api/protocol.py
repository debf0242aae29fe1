"""Speak HTTP/1.1 as uvicorn does, and close connections whose caller sends no head, or no end of a refused body."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

#: What a caller may take to send the head of a call, its TLS handshake included, or the rest of an answered body.
HEAD_S = 15.0
#: What is written to a connection is sent at once from this size on.
JOINED_BYTES = 1 << 16


class JoinedWrites:
    """A transport that sends what is written at once as one record: the head of an answer and its body, above all."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Send it, together with what is written in the same step."""
        if data and not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting += data
        if len(self._waiting) >= JOINED_BYTES:
            self._flush()

    def close(self) -> None:
        """Send what waits, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            self._transport.write(bytes(self._waiting))
            self._waiting.clear()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)


class ImpatientProtocol(H11Protocol):
    """A connection that is closed if the head of a call that began does not come in time, the first or a later one.

    A call may be answered before its body came whole. The rest is thrown away, and must come in that time, too.
    """

    _timer: asyncio.TimerHandle | None = None
    #: Which of the two the timer waits for.
    _awaited: Any = None

    def connection_made(self, transport: Any) -> None:
        """Begin to count."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type] # It behaves as one.
        self._count()

    def data_received(self, data: bytes) -> None:
        """Count while a head is not whole. What uvicorn itself times is only the silence between two calls."""
        super().data_received(data)
        self._count()

    def on_response_complete(self) -> None:
        """Count while a body is not whole whose call is answered."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to count."""
        self._stop()
        super().connection_lost(exc)

    def _count(self) -> None:
        state = self.conn.their_state
        is_late = state is h11.IDLE or (state is h11.SEND_BODY and self._is_answered())
        if not is_late or state is not self._awaited:
            self._stop()
        if is_late and self._timer is None and not self.transport.is_closing():
            self._timer, self._awaited = self.loop.call_later(HEAD_S, self._close), state

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _close(self) -> None:
        # A response may still be on its way to a caller who sends the next call already.
        if self._is_answered() and not self.transport.is_closing():
            self.transport.close()
        self._timer = None
