"""Call a disk that may never answer: in a thread of its own, for a limited time.

A thread that hangs keeps nothing else waiting: neither the loop's other threads nor the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadEach(Executor):
    """Begin each call in a thread of its own."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Begin a call, and return its result to come."""
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()  # Who stops waiting for it can't undo it.

        def run() -> None:
            try:
                result.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 # Who waits for the result gets the error.
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return result


THREADS = ThreadEach()


async def within(limit_s: float, call: Callable[[], T]) -> T:
    """Return what a call returns. Raises `TimeoutError` after the limit; the call itself may still end later."""
    async with asyncio.timeout(limit_s):
        return await asyncio.get_running_loop().run_in_executor(THREADS, call)


@dataclass
class DiskWriter:
    """Write one file from one event loop, one write after the other. While a write hangs no other begins."""

    _last: asyncio.Future[bool] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def write(self, call: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a write. False when it failed, or while the disk does not answer; then a later one must do it."""
        async with self._turn:
            if self._last is not None and not self._last.done():
                return False
            self._last = asyncio.get_running_loop().run_in_executor(THREADS, call)
            await asyncio.wait([self._last], timeout=limit_s)
            return self._last.done() and self._last.result()
