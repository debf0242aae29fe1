"""A clock that only tests move."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
#: Rounds of the event loop that other tasks get before time goes on, so that what can run at one instant does.
ROUNDS = 20


class SteppedClock:
    """`ledger.kernel.clock.Clock` in virtual time.

    With `auto` (the default) a `sleep` costs no real time: once the other tasks had their turns, time jumps to the
    earliest sleeper, so sleepers wake in the order of their deadlines, ties in the order of their calls. Without it
    only `advance` and `run` move time.
    """

    def __init__(self, start: datetime = START, *, auto: bool = True) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._auto = auto
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._stepping = False

    def now(self) -> datetime:
        """Virtual wall time, aware UTC."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._elapsed_s

    def advance(self, seconds: float | timedelta) -> datetime:
        """Move time forward and make every sleeper ready whose deadline has come; returns the new time."""
        step = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if step < 0:
            raise ValueError("time goes forward only; use jump() for a wall clock that is set back")
        self._reach(self._elapsed_s + step)
        return self.now()

    def jump(self, by: timedelta) -> datetime:
        """Set the wall clock forward or back; monotonic time and sleepers do not notice."""
        self._start += by
        return self.now()

    async def sleep(self, seconds: float) -> None:
        """Wait until virtual time has gone on by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), turn))
        if self._auto and not self._stepping:
            self._stepping = True
            loop.call_soon(self._step, loop, ROUNDS)
        await turn

    async def run(self, seconds: float) -> None:
        """Let `seconds` pass, stopping at every deadline on the way and giving the woken tasks their turns."""
        end = self._elapsed_s + seconds
        await self.settle()
        while (at := self._earliest()) is not None and at <= end:
            self._reach(at)
            await self.settle()
        self._reach(end)
        await self.settle()

    async def settle(self) -> None:
        """Give the other tasks some turns without moving time."""
        for _ in range(ROUNDS):
            await asyncio.sleep(0)

    def _step(self, loop: asyncio.AbstractEventLoop, rounds: int) -> None:
        if rounds:
            loop.call_soon(self._step, loop, rounds - 1)
            return
        at = self._earliest()
        if at is None:
            self._stepping = False
            return
        self._reach(at)
        loop.call_soon(self._step, loop, ROUNDS)

    def _earliest(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)  # Its task was cancelled; time does not stop for it.
        return self._sleepers[0][0] if self._sleepers else None

    def _reach(self, elapsed_s: float) -> None:
        self._elapsed_s = max(self._elapsed_s, elapsed_s)
        while self._sleepers and self._sleepers[0][0] <= self._elapsed_s:
            _, _, turn = heapq.heappop(self._sleepers)
            if not turn.done():
                turn.set_result(None)


class MachineClock:
    """The clock of one machine: `base`, and what a test set its wall clock ahead or back. Monotonic time runs on."""

    def __init__(self, base: SteppedClock) -> None:
        self._base = base
        self.off = timedelta()

    def now(self) -> datetime:
        """What the machine's wall clock shows, aware UTC."""
        return self._base.now() + self.off

    def monotonic(self) -> float:
        """Seconds of the base."""
        return self._base.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the base."""
        await self._base.sleep(seconds)
