"""Speak HTTP/1.1 as uvicorn does, and close connections whose caller does not send the head of a call."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: What a caller may take to send the head of a call, its TLS handshake included.
HEAD_S = 15.0


class ImpatientProtocol(H11Protocol):
    """A connection that is closed if no whole head of a call came in time."""

    def connection_made(self, transport: Any) -> None:
        """Begin to count."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to count."""
        self._head_timer.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if getattr(self, "cycle", None) is None and not self.transport.is_closing():
            self.transport.close()
