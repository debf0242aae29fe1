"""How fast a sandbox goes: its clock, which can be moved ahead, and the delays of its cloud."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ledger.kernel.clock import Clock


class SandboxClock:
    """The injected clock plus the seconds that somebody travelled. It only ever goes forward."""

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._offset_s = 0.0

    def now(self) -> datetime:
        """Aware UTC."""
        return self._base.now() + timedelta(seconds=self._offset_s)

    def monotonic(self) -> float:
        """Seconds."""
        return self._base.monotonic() + self._offset_s

    def shown(self) -> datetime:
        """What the cloud's answers show: the time of the clock that the tests and the practice page move.

        What only the cloud travelled is left out: a bot beside it would find its own clock wrong.
        """
        return self._base.now()

    async def sleep(self, seconds: float) -> None:
        """Seconds of the base clock."""
        await self._base.sleep(seconds)

    def travel(self, seconds: float) -> None:
        """Move the sandbox ahead by `seconds`; ValueError when negative, because bills cannot be unwritten."""
        if seconds < 0:
            raise ValueError("the sandbox clock only goes forward: give zero or more seconds")
        self._offset_s += seconds


@dataclass(frozen=True, slots=True)
class SandboxTiming:
    """How slow the cloud is, in seconds of the sandbox clock. The defaults are realistic; `quick` is for a demo.

    `get_lag_s` and `list_lag_s`: from a create to the first sight by id and in a listing. `boot_s`: to *running*.
    `reachable_s`: from running to the first SSH answer. `destroy_s`: from the acknowledged destroy to absence.
    `charges_lag_s`: how late the cloud's own bill is.
    """

    get_lag_s: float = 2.0
    list_lag_s: float = 5.0
    boot_s: float = 120.0
    reachable_s: float = 8.0
    stop_s: float = 5.0
    start_s: float = 40.0
    destroy_s: float = 3.0
    charges_lag_s: float = 600.0
    enforce_rate_limits: bool = True

    @classmethod
    def quick(cls, **changes: Any) -> SandboxTiming:
        """Everything within a few seconds, without rate limits: for `demo` and for tests."""
        base = cls(
            get_lag_s=0.0,
            list_lag_s=0.0,
            boot_s=3.0,
            reachable_s=0.5,
            stop_s=0.5,
            start_s=1.5,
            destroy_s=0.5,
            charges_lag_s=0.0,
            enforce_rate_limits=False,
        )
        return replace(base, **changes)
