"""Serve an ASGI program on loopback from inside a running event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import uvicorn

STOP_S: Final = 2
HOST: Final = "127.0.0.1"


class _Server(uvicorn.Server):
    """A server that leaves signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the program that owns the process decides when to stop."""
        yield


@asynccontextmanager
async def serve_on_loopback(app: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve `app` on 127.0.0.1 and yield its base URL; port 0 picks a free one. OSError when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            # The other WebSocket implementation uses a module that its library has deprecated.
            ws="websockets-sansio",
            timeout_graceful_shutdown=STOP_S,
        )
        server = _Server(config)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
    finally:
        listener.close()
