"""Limit how many requests one person or program makes within an hour, whatever became of the earlier ones.

Requests for machines are counted together. Those about a session that exists are counted for that session, each kind
apart, so that nothing else that somebody requested keeps a run from its next hours or from a machine that saves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Final

from bot.rules.values.phrases import hours, plural
from ledger.kernel.request_kind import RequestKind

WINDOW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CountedAs:
    """Say among which requests one is counted: by default, those for machines."""

    kind: RequestKind = RequestKind.PROVISION
    session_id: str = ""

    @property
    def key(self) -> str:
        """Return the word under which these requests are stored; empty for those for machines."""
        return f"{self.kind}/{self.session_id}" if self.session_id else ""


FOR_MACHINES: Final = CountedAs()


@dataclass(frozen=True, slots=True)
class TooMany:
    """Hold why a request is refused for now, and after how many seconds the next one is possible."""

    sentence: str
    retry_after_s: int


def refusal(latest: Sequence[datetime], most: int, now: datetime, counted: CountedAs = FOR_MACHINES) -> TooMany | None:
    """Return why a person can't make another request now, from when they made the latest of its group, newest first."""
    recent = [at for at in latest if at > now - WINDOW]
    if len(recent) < most:
        return None
    # A clock that was ahead when a request was made delays the next one by no more than the hour.
    wait = min(recent[most - 1] + WINDOW - now, WINDOW)
    minutes = Decimal(ceil(wait / timedelta(minutes=1)))
    sentence = (
        f"{_made(most, counted)} within an hour, and the policy allows no more (max_requests_per_hour). "
        f"The next one is possible in {hours(minutes / 60)}."
    )
    return TooMany(sentence, ceil(wait / timedelta(seconds=1)))


def _made(most: int, counted: CountedAs) -> str:
    if not counted.session_id:
        return f"You made {plural(most, 'request')}"
    what = "a move of this session" if counted.kind is RequestKind.MIGRATE else "more time for this session"
    return f"You asked for {what} {plural(most, 'time')}"
