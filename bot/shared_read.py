"""Let all who ask while a read is under way share its answer, so that a burst of requests reads once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedRead(Generic[T]):
    """Run a read once for all who ask meanwhile. Nothing is kept after its end: who asks then reads anew."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Return what the read returns; raise what it raises."""
        running = self._running
        if running is None or running.done() or running.get_loop() is not asyncio.get_running_loop():
            running = self._running = asyncio.create_task(self._once(), name="shared-read")
        return await asyncio.shield(running)

    async def _once(self) -> T:
        return await self._read()
