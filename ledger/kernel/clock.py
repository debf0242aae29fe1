"""Pass the clock as an argument to every module that needs the time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Give the time to code as an argument. `now` is aware UTC; `sleep` and `monotonic` are in seconds."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...
