"""Provide the clocks. Only this module reads the machine's time; all others take a `Clock` as an argument."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from ledger.kernel.clock import Clock


class SystemClock:
    """Read the machine's own time, aware UTC."""

    def now(self) -> datetime:
        """Return the present moment, aware UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this clock is the one place where time enters the program.

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of real time."""
        await asyncio.sleep(seconds)


class TravelClock:
    """A clock that runs like `base` and can be moved forward; sleepers that are due then wake.

    Sleepers may live in several event loops; `travel` may be called from any of them.
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base: Clock = base if base is not None else SystemClock()
        self._ahead_s = 0.0
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def ahead_s(self) -> float:
        """Return how many seconds this clock is ahead of its base."""
        return self._ahead_s

    def now(self) -> datetime:
        """Return the base's time plus everything travelled."""
        return self._base.now() + timedelta(seconds=self._ahead_s)

    def monotonic(self) -> float:
        """Return the base's monotonic seconds plus everything travelled."""
        return self._base.monotonic() + self._ahead_s

    def travel(self, seconds: float) -> None:
        """Move forward by `seconds`; raises ValueError for a negative number, because ledger time only grows."""
        if seconds < 0:
            raise ValueError("a clock can only travel forward: give a number of seconds that is not negative")
        self._ahead_s += seconds
        for sleeper in tuple(self._sleepers):
            # A sleeper may belong to another thread's loop, so its own loop has to wake it.
            sleeper.get_loop().call_soon_threadsafe(_wake, sleeper)

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock, by waiting or by travelling."""
        deadline = self.monotonic() + seconds
        while (remaining := deadline - self.monotonic()) > 0:
            await self._nap(remaining)
        await asyncio.sleep(0)

    async def _nap(self, seconds: float) -> None:
        travelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waited = asyncio.ensure_future(self._base.sleep(seconds))
        self._sleepers.add(travelled)
        try:
            await asyncio.wait({travelled, waited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sleepers.discard(travelled)
            waited.cancel()


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
