"""Speak HTTP/1.1 as uvicorn does, and close connections whose caller does not send the head of a call."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

#: What a caller may take to send the head of a call, its TLS handshake included.
HEAD_S = 15.0


class ImpatientProtocol(H11Protocol):
    """A connection that is closed if the head of a call that began does not come in time, the first or a later one."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to count."""
        super().connection_made(transport)
        self._count()

    def data_received(self, data: bytes) -> None:
        """Count while a head is not whole. What uvicorn itself times is only the silence between two calls."""
        super().data_received(data)
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to count."""
        self._stop()
        super().connection_lost(exc)

    def _count(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._close)

    def _stop(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close(self) -> None:
        # A response may still be on its way to a caller who sends the next call already.
        cycle: RequestResponseCycle | None = self.cycle
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()
        self._head_timer = None
