"""Define the figures of one digest, as they are when it is due.

The message shows these, however late it can be delivered.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from bot.services.market.offer_fields import Strict

Shares = tuple[tuple[str, Decimal], ...]


class RunningSession(Strict):
    """A session that has not ended. `rate_usd_h` is 0 while it has no instance."""

    id: str
    owner: str
    gpu: str
    gpu_count: int
    cloud: str
    state: str
    rate_usd_h: Decimal
    deadline: datetime | None
    #: Whose short id people read; empty in a digest that an older release stored.
    request_id: str = ""


class Ended(Strict):
    """A session that ended, why, and what it cost."""

    id: str
    owner: str
    gpu: str
    gpu_count: int
    code: str
    reason: str
    cost_usd: Decimal


class FoundOrphan(Strict, from_attributes=True):
    """An orphan that was found in the window."""

    id: str
    cloud: str
    state: str
    price_usd_h: Decimal


class RetainedDisk(Strict):
    """A disk that is retained while its instance is stopped."""

    id: str
    owner: str
    cloud: str
    price_usd_h: Decimal
    until: datetime


class DigestDocument(Strict):
    """A day, or a week where `weekly`, from `first` to `last`; dollars, and the most important of each list.

    `groups` are of that time, `month` of the month to its end; `days` are for the chart. `saved_usd` is what was not
    spent because sessions ended before their approved end or were stopped.
    """

    weekly: bool
    first: date
    last: date
    zone: str
    spent_usd: Decimal
    before_usd: Decimal
    month_usd: Decimal
    #: None while fewer than seven days are known.
    forecast_usd: Decimal | None
    budgets: tuple[str, ...]
    groups: dict[str, Shares]
    month: dict[str, Shares]
    days: tuple[tuple[date, Decimal], ...]
    running: tuple[RunningSession, ...]
    running_in_all: int
    running_usd_h: Decimal
    ended: tuple[Ended, ...]
    ended_by: dict[str, int]
    saved_usd: Decimal
    stopped_in_all: int
    orphans: tuple[FoundOrphan, ...]
    orphans_in_all: int
    anomalies: tuple[str, ...]
    unreconciled: tuple[str, ...] = ()
    disks: tuple[RetainedDisk, ...] = ()
    disks_in_all: int = 0
    #: What was started without an approval, and why.
    broken_glass: tuple[str, ...] = ()
