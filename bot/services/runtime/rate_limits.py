"""Share the rate limits of the clouds with every replica, through the ledger."""

from __future__ import annotations

import logging
from datetime import timedelta

from bot.services.runtime.clock_guard import shared_now
from ledger.core import rate_limits
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from providers.rate_limits import LocalPacer, Pace, Turn

log = logging.getLogger(__name__)


class LedgerPacer:
    """Implement `providers.rate_limits.Pacer` over the ledger. `scale` multiplies every interval.

    While the ledger is unavailable it keeps the limits for this process alone: a create must not fail for that.
    """

    def __init__(self, db: Database, clock: Clock, scale: float = 1.0) -> None:
        self._db = db
        self._clock = clock
        self.scale = scale
        self._alone = LocalPacer(clock, scale)

    async def reserve(self, name: str, pace: Pace) -> Turn:
        """Reserve a turn for one call, as the protocol says."""
        every = timedelta(seconds=pace.every_s * self.scale)
        ahead, patience = every * (pace.burst - 1), timedelta(seconds=pace.wait_max_s)
        try:
            wait, taken = await rate_limits.take(
                self._db, name, shared_now(self._clock), every=every, ahead=ahead, patience=patience
            )
        except rate_limits.TurnsUnavailable as error:
            log.warning("the turns at the clouds are not shared for now: %s", error)
            return await self._alone.reserve(name, pace)
        return Turn(wait.total_seconds(), taken)

    async def pause(self, name: str, pause_s: float) -> None:
        """Pause the calls under one name, as the protocol says."""
        now = shared_now(self._clock)
        try:
            await rate_limits.pause_until(self._db, name, now, now + timedelta(seconds=pause_s * min(self.scale, 1.0)))
        except rate_limits.TurnsUnavailable as error:
            log.warning("a pause at a cloud is not shared: %s", error)
            await self._alone.pause(name, pause_s)
