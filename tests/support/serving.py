"""A real HTTP server for an ASGI app, on a free port of 127.0.0.1, in the test's own event loop."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from bot.practice.server import serve_on_loopback


def serving(app: Any) -> AbstractAsyncContextManager[str]:
    """Serve `app`, with its start and its end, and give its base URL."""
    # A request that a failed test still holds must not keep its teardown for ever.
    return serve_on_loopback(app, lifespan="on", stop_s=5)
