"""Limit how many requests one person or program makes within an hour, whatever became of the earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Final

from bot.rules.values.phrases import hours, plural

WINDOW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TooMany:
    """Hold why a request is refused for now, and after how many seconds the next one is possible."""

    sentence: str
    retry_after_s: int


def refusal(latest: Sequence[datetime], most: int, now: datetime, *, more_time: bool) -> TooMany | None:
    """Return why a person can't make another request now, from when they made the latest ones, the newest first.

    `more_time`: it is one of the requests for more time, which are counted apart.
    """
    recent = [at for at in latest if at > now - WINDOW]
    if len(recent) < most:
        return None
    # A clock that was ahead when a request was made delays the next one by no more than the hour.
    wait = min(recent[most - 1] + WINDOW - now, WINDOW)
    minutes = Decimal(ceil(wait / timedelta(minutes=1)))
    made = f"You asked for more time {plural(most, 'time')}" if more_time else f"You made {plural(most, 'request')}"
    sentence = (
        f"{made} within an hour, and the policy allows no more (max_requests_per_hour). "
        f"The next one is possible in {hours(minutes / 60)}."
    )
    return TooMany(sentence, ceil(wait / timedelta(seconds=1)))
