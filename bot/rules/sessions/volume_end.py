"""Decide when a network volume is deleted: at its written end, or after days of notices where its amount is too small.

Its amount alone never deletes it. A volume whose rate rose, because what is on it grew, may outlive its amount by at
most the days of notices: nobody is there at night to decide, and what is deleted never comes back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.sessions.expiration import warnings

DAY = timedelta(days=1)
#: Longer than any volume may stay.
LONGEST = timedelta(days=3_660)
#: The shortest time between the first notice of a deletion and the deletion.
LEAST_NOTICE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class VolumeEnd:
    """Hold when a volume is deleted, and from when its days of notices count; None while its amount is enough."""

    deadline: datetime
    grace_at: datetime | None = None


def unpaid_time(excess_usd: Decimal, price_usd_h: Decimal) -> timedelta:
    """Return for how long the days of notices may cost more than the amounts at this rate."""
    if price_usd_h <= 0:
        return LONGEST
    return min(timedelta(seconds=int(excess_usd / price_usd_h * 3600)), LONGEST)


def volume_end(
    written: datetime, paid: datetime, grace_at: datetime | None, days: int, now: datetime, unpaid: timedelta = LONGEST
) -> VolumeEnd:
    """Return the end of a volume whose amounts pay until `paid` (at most `written`) at its present rate.

    Its days of notices begin early enough for the amount to pay them, or else now. Once begun, they continue. They cost
    at most what `unpaid` hours more cost, so they become fewer at a higher rate, and never fewer than one day.
    """
    if paid >= written:
        return VolumeEnd(written)
    grace, latest = timedelta(days=days), max(now, paid - timedelta(days=days))
    begins = grace_at if grace_at is not None and grace_at <= now and latest <= now else latest
    return VolumeEnd(min(written, max(begins + DAY, min(begins + grace, paid + unpaid))), begins)


def notices(
    before_s: Collection[int], began_at: datetime, deadline: datetime, grace_at: datetime | None
) -> tuple[datetime, ...]:
    """Return when people are notified of a deletion: as before every end, a day before, and on each day of notices.

    A volume that lives for less than two days is announced at half of its time.
    """
    first = min(DAY, (deadline - began_at) / 2)
    usual = {*warnings((*before_s, int(DAY.total_seconds())), began_at, deadline), deadline - first}
    daily = [] if grace_at is None else [grace_at + n * DAY for n in range((deadline - grace_at) // DAY + 1)]
    return tuple(sorted(usual | {at for at in daily if at < deadline}))


def may_delete(deadline: datetime, warned_at: datetime | None, now: datetime) -> bool:
    """Whether a volume whose end has come may be deleted: people had a notice, and time after it."""
    if warned_at is None or now < deadline:
        return False
    return warned_at < deadline or now >= warned_at + LEAST_NOTICE
