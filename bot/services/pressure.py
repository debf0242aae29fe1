"""Acknowledgements first: work that can wait steps aside while somebody waits for an answer.

Everything runs on one event loop, so a burst of inbound messages and the work that earlier ones caused compete for it.
Slack gives an acknowledgement three seconds; the rest is in the ledger and loses nothing by waiting. So each unit of
follow-up work asks here before it starts. It goes at once while no messages come. While they come, it goes when the
loop keeps up with them, which is seen from how late a short sleep ends: the spare time of a steady load is used, and a
loop that is behind does only acknowledgements, but for one unit every `trickle_s`, so that nothing starves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The longest that one unit waits once it is its turn. The units of a full batch must start within their leases.
TRICKLE_S = 0.5
#: How long no message must have come before nobody is waited for.
QUIET_S = 0.25
#: How long the loop is watched, and how late it may be while it still keeps up.
PROBE_S = 0.002
LATE_S = 0.01


class Pressure:
    """Knows when the last message came and whether the loop keeps up. One per process.

    `now` is a monotonic clock in seconds: the loop's lateness is real, whatever time the services are told.
    """

    def __init__(self, trickle_s: float = TRICKLE_S, now: Callable[[], float] = time.monotonic) -> None:
        self._trickle_s = trickle_s
        self._now = now
        self._inbound = 0
        self._last = float("-inf")
        self._turn = asyncio.Lock()

    @property
    def inbound(self) -> int:
        """How many messages wait for their acknowledgement now."""
        return self._inbound

    @contextmanager
    def acknowledging(self) -> Iterator[None]:
        """Around everything between an inbound message and its answer."""
        self._inbound += 1
        try:
            yield
        finally:
            self._inbound -= 1
            self._last = self._now()

    async def ease(self) -> None:
        """Before a unit of follow-up work: returns at once while no messages come, and in turn while they do."""
        if self._quiet():
            return
        async with self._turn:
            until = self._now() + self._trickle_s
            while not self._quiet():
                began = self._now()
                await asyncio.sleep(PROBE_S)
                ended = self._now()
                if ended - began - PROBE_S < LATE_S or ended >= until:
                    return

    def _quiet(self) -> bool:
        return not self._inbound and self._now() - self._last >= QUIET_S
