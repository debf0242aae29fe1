"""Define the figures of one digest, as they are when it is due.

The message shows these, however late it can be delivered.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from bot.services.market.offer_fields import Strict

Shares = tuple[tuple[str, Decimal], ...]


class RunningSession(Strict, from_attributes=True):
    """A session that has not ended."""

    owner: str
    gpu: str
    gpu_count: int
    #: Whose short id people read.
    request_id: str


class FoundOrphan(Strict, from_attributes=True):
    """An orphan that was found in the window."""

    id: str
    cloud: str
    state: str
    price_usd_h: Decimal


class DigestDocument(Strict):
    """A day, or a week where `weekly`, from `first` to `last`; dollars, and the most important of each list.

    `groups` are of that time, `month_usd` is of the month to its end. `saved_usd` is what was not
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
    days: tuple[tuple[date, Decimal], ...]
    running: tuple[RunningSession, ...]
    running_in_all: int
    running_usd_h: Decimal
    #: Why sessions ended, and how many for each reason.
    ended_by: dict[str, int]
    saved_usd: Decimal
    orphans: tuple[FoundOrphan, ...]
    orphans_in_all: int
    anomalies: tuple[str, ...]
    unreconciled: tuple[str, ...] = ()
    disks_in_all: int = 0
    #: What was started without an approval, and why.
    broken_glass: tuple[str, ...] = ()
    #: Which steady use a reservation would have made cheaper; said once a month.
    reservations: tuple[str, ...] = ()
    #: Machines that stopped working and are kept, with what each costs meanwhile.
    graces: tuple[str, ...] = ()
