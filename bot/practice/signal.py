"""Wait for a change without polling."""

from __future__ import annotations

import asyncio


class Signal:
    """Count the changes of something and wake everybody who waits for the next one.

    Waiters may live in several event loops, because a server under test often runs in a thread of its own.
    """

    def __init__(self) -> None:
        self.version = 0
        self.closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Report a change."""
        self.version += 1
        self._wake()

    def close(self) -> None:
        """Wake everybody finally: nothing will change any more."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.get_loop().call_soon_threadsafe(_finish, waiter)

    async def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Return once `version` is above `after`, at once when it already is; at the latest after `timeout_s`."""
        if self.version > after or self.closed:
            return self.version
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=timeout_s)
        finally:
            self._waiters.discard(waiter)
        return self.version


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
