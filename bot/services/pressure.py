"""Acknowledgements first: work that can wait steps aside while somebody waits for an answer.

Everything runs on one event loop, so a burst of inbound messages and the work that earlier ones caused compete for it.
Slack gives an acknowledgement three seconds; the rest is in the ledger and loses nothing by waiting. So each unit of
follow-up work asks here before it starts. It goes at once while the door is quiet; during a burst one unit is let
through every `trickle_s`, so that nothing starves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

TRICKLE_S = 0.25


class Pressure:
    """Counts the messages that wait for an acknowledgement. One per process."""

    def __init__(self, trickle_s: float = TRICKLE_S) -> None:
        self._trickle_s = trickle_s
        self._inbound = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._turn = asyncio.Lock()

    @property
    def inbound(self) -> int:
        """How many messages wait for their acknowledgement now."""
        return self._inbound

    @contextmanager
    def acknowledging(self) -> Iterator[None]:
        """Around everything between an inbound message and its answer."""
        self._inbound += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._inbound -= 1
            if not self._inbound:
                self._quiet.set()

    async def ease(self) -> None:
        """Before a unit of follow-up work: returns at once while it is quiet, and in turn during a burst."""
        if self._quiet.is_set():
            return
        async with self._turn:
            try:
                await asyncio.wait_for(self._quiet.wait(), self._trickle_s)
            except TimeoutError:
                return
