"""Pass the clock as an argument to every module that needs the time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """Give the time to code as an argument. `now` is aware UTC; `sleep` and `monotonic` are in seconds."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


@runtime_checkable
class NotesDates(Protocol):
    """A clock that compares itself with the times in the clouds' answers."""

    def note_date(self, cloud: str, shown: datetime | None, took_s: float) -> None:
        """Note the time that a cloud's answer shows; None where it shows none."""
