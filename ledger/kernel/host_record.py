"""Hold what own sessions on one host showed, as a search for offers reads it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class HostRecord:
    """Count the sessions on a host, those that failed or were slow, and the hours in which its GPUs ran."""

    sessions: int
    failed: int = 0
    slow: int = 0
    hours: Decimal = Decimal(0)
