"""Keep the last status of each run, so that Kaggle is not asked more often than it allows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ledger.kernel.clock import Clock


class Statuses:
    """The last status answer of each run. It stands for `every`; where that is zero, nothing is remembered."""

    def __init__(self, clock: Clock, every: timedelta) -> None:
        self._clock = clock
        self._every = every
        self._heard: dict[str, tuple[datetime, dict[str, Any]]] = {}

    def known(self, ref: str) -> dict[str, Any] | None:
        """The answer that still stands for this run, if there is one."""
        at, body = self._heard.get(ref, (None, None))
        return body if at is not None and timedelta(0) <= self._clock.now() - at < self._every else None

    def store(self, ref: str, body: dict[str, Any]) -> None:
        """Keep this answer, and forget those that no longer stand."""
        now = self._clock.now()
        self._heard = {one: kept for one, kept in self._heard.items() if now - kept[0] < self._every}
        if self._every:
            self._heard[ref] = now, body
