"""Serve an ASGI program on loopback from inside a running event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Literal

import uvicorn

STOP_S: Final = 2
HOST: Final = "127.0.0.1"


class _Server(uvicorn.Server):
    """Serve without handling signals, and stop at once when the program asks for it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the program that owns the process decides when to stop."""
        yield

    def stop(self) -> None:
        """Take no more connections and end when the last answer is sent."""
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        """Wait for the stop."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close idle connections, wait for the others for a while, and end what is left."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        latest = loop.time() + (self.config.timeout_graceful_shutdown or 0)
        # Connections and tasks leave these sets without a sign, so they are looked at.
        while (self.server_state.connections or self.server_state.tasks) and loop.time() < latest:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def serve_on_loopback(
    app: Any, port: int = 0, *, lifespan: Literal["on", "off"] = "off", stop_s: int = STOP_S
) -> AsyncIterator[str]:
    """Serve `app` on 127.0.0.1 and yield its base URL; port 0 picks a free one. OSError when the port is taken.

    A request that is still open at the end has `stop_s` seconds.
    """
    # The protocol is named, because asyncio sends an answer without delay only where it finds TCP there.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan=lifespan,
            date_header=False,  # The sandboxes send the time of their own clock.
            # The other WebSocket implementation uses a module that its library has deprecated.
            ws="websockets-sansio",
            timeout_graceful_shutdown=stop_s,
        )
        server = _Server(config)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            server.stop()
            await serving
    finally:
        listener.close()
