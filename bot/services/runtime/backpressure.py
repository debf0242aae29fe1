"""Delay follow-up work while a burst of inbound messages waits for acknowledgements.

Everything runs on one event loop, so a burst of inbound messages and the work that earlier ones caused compete for it.
Slack gives an acknowledgement three seconds; the rest is in the ledger and loses nothing by waiting. So each unit of
follow-up work waits here before it starts. It starts at once while messages are few. In a burst, it starts when the
loop has time to spare: its thread was not too busy during a short sleep, and the sleep did not end late. A steady
load leaves such time. A loop without spare time does only acknowledgements, except for one unit every `trickle_s`,
so that nothing starves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

#: The longest that one unit waits once it is its turn. The units of a full batch must start within their leases.
TRICKLE_S = 0.5
#: This many messages in this time are a burst; people who type and click make none.
BURST = 8
BURST_S = 1.0
#: How often the loop is probed, and over how many probes it must have had time to spare: it worked at most `BUSY` of
#: that time, and the last probe ended at most `LATE_S` late.
PROBE_S = 0.02
LOOKS = 8
LATE_S = 0.01
BUSY = 0.7


class Pressure:
    """Track when messages arrived and whether the event loop keeps up. One per process.

    `now` is a monotonic clock and `worked` the processor time of the loop's thread, both in seconds. Neither depends on
    the clock that services use.
    """

    def __init__(
        self,
        trickle_s: float = TRICKLE_S,
        now: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._trickle_s = trickle_s
        self._now = now
        self._worked = worked
        self._arrivals: deque[float] = deque(maxlen=BURST)
        self._turn = asyncio.Lock()
        self._looks: deque[tuple[float, float]] = deque(maxlen=LOOKS)

    def arrived(self) -> None:
        """Note that a message arrived that needs an acknowledgement."""
        self._arrivals.append(self._now())

    async def ease(self) -> None:
        """Wait before a unit of follow-up work: not at all while messages are few, in turn in a burst."""
        if self._quiet():
            return
        async with self._turn:
            until = self._now() + self._trickle_s
            while not self._quiet() and self._now() < until:
                if await self._has_time():
                    return

    async def _has_time(self) -> bool:
        began = self._now()
        await asyncio.sleep(PROBE_S)
        now, worked = self._now(), self._worked()
        looks = self._looks
        if looks and began - looks[-1][0] > LOOKS * PROBE_S:
            looks.clear()  # Nothing was probed for a while, so the old probes say nothing about now.
        looks.append((now, worked))
        since, before = looks[0]
        return len(looks) == LOOKS and now - began - PROBE_S < LATE_S and worked - before < BUSY * (now - since)

    def _quiet(self) -> bool:
        return len(self._arrivals) < BURST or self._now() - self._arrivals[0] >= BURST_S
