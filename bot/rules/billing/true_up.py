"""Compare the ledger with a cloud's own bill: when the bill of an instance is complete, and what to correct."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.billing.end_times import KnownEnd
from bot.rules.billing.metering import so_far
from ledger.kernel import money
from providers.capabilities import BillGranularity, BillingRule

#: A bill is cut into hours by some clouds, so its last line may end a little before the instance did.
SLACK = timedelta(hours=1)
#: A total that reaches beyond an instance's end does not show how far it has come: it counts as complete after this.
SETTLED = timedelta(days=2)
#: An instance without a complete bill for so long raises an alarm.
UNCLEARED = timedelta(days=4)


#: An instance may exist this much longer than until its termination was accepted.
LINGERS = timedelta(minutes=5)
#: What has no rate per hour.
TRAFFIC = "bandwidth"
#: Lines of these are totals that grow while they are read.
TOTALS = frozenset({BillGranularity.DAY, BillGranularity.MONTH})


@dataclass(frozen=True, slots=True)
class BillLineItem:
    """Describe one line of a cloud's bill about one instance."""

    component: str
    amount_usd: Decimal
    begins: datetime
    ends: datetime


def counted(lines: Collection[BillLineItem]) -> tuple[list[BillLineItem], bool]:
    """Return the lines that count, and whether none overlaps another one in part.

    Lines of one component that overlap are never summed: one that lies within another is part of it, and of two that
    overlap in part only the greater counts. The bill is then at least that much, and is not known.
    """
    found: list[BillLineItem] = []
    clear = True
    for line in sorted(lines, key=lambda one: (one.component, one.begins, -one.ends.timestamp(), -one.amount_usd)):
        last = found[-1] if found else None
        if last is None or last.component != line.component or line.begins >= last.ends:
            found.append(line)
        elif line.ends > last.ends:
            clear = False
            if line.amount_usd > last.amount_usd:
                found[-1] = line
    return found, clear


def is_whole(
    lines: Collection[BillLineItem],
    billed_from: datetime | None,
    ended_at: datetime,
    now: datetime,
    granularity: BillGranularity = BillGranularity.INSTANT,
    end_range: KnownEnd | None = None,
) -> bool:
    """Whether the bill's lines cover an instance's whole time and are known to be complete.

    Two days after the latest end in `end_range` all late lines have come, so the bill may end anywhere in that range.
    """
    if not lines:
        return False
    first, last = min(line.begins for line in lines), max(line.ends for line in lines)
    if (granularity in TOTALS or last > ended_at + SLACK) and now - ended_at < SETTLED:
        return False
    if end_range is not None and now - end_range.latest >= SETTLED:
        ended_at = end_range.earliest
    return last >= ended_at - SLACK and (billed_from is None or first <= billed_from + SLACK)


def is_settled(
    lines: Collection[BillLineItem],
    latest_at: datetime,
    now: datetime,
    granularity: BillGranularity = BillGranularity.INSTANT,
) -> bool:
    """Whether a whole bill leaves nothing open of an instance that ended at `latest_at` at the latest.

    A line that ends earlier does not show that no other one follows, until late lines have come, too.
    """
    if now - latest_at >= SETTLED:
        return True
    return granularity not in TOTALS and abs(max(line.ends for line in lines) - latest_at) <= SLACK


def is_above(booked_usd: Mapping[str, Decimal], differences: Mapping[str, Decimal], most_usd: Decimal) -> bool:
    """Whether corrections book more than an instance can have cost, so that a person is asked first.

    `most_usd` is its time at its approved rate. Traffic has no rate and is not counted.
    """
    added = {name: usd for name, usd in differences.items() if name != TRAFFIC}
    if sum(added.values(), Decimal(0)) <= 0:
        return False
    used = sum((usd for name, usd in booked_usd.items() if name != TRAFFIC), Decimal(0))
    return used + sum(added.values(), Decimal(0)) > most_usd


def most(existed_from: datetime, existed_until: datetime, rate_usd_h: Decimal, rule: BillingRule) -> Decimal:
    """Return the most that an instance can have cost: the hours that it existed, at its approved rate."""
    return so_far(existed_from, existed_until + LINGERS, rate_usd_h, rule)


def corrections(
    booked_usd: Mapping[str, Decimal], lines: Collection[BillLineItem], *, whole: bool
) -> dict[str, Decimal]:
    """Return the dollars to add to each component (negative: to subtract) so that the ledger agrees with the bill.

    While lines are missing nothing is taken back, and something is added only where the bill is above the ledger
    already.
    """
    billed: dict[str, Decimal] = {}
    for line in lines:
        billed[line.component] = billed.get(line.component, Decimal(0)) + line.amount_usd
    names = dict.fromkeys((*booked_usd, *billed))
    found = {name: billed.get(name, Decimal(0)) - booked_usd.get(name, Decimal(0)) for name in names}
    if not whole:
        if sum(found.values(), Decimal(0)) <= 0:
            return {}
        found = {name: difference for name, difference in found.items() if difference > 0}
    # A difference below the ledger's unit is rounding.
    return {name: difference for name, difference in found.items() if abs(difference) >= money.MICRO_USD}


def is_late(ended_at: datetime, now: datetime, *, whole: bool) -> bool:
    """Whether a bill that should be complete by now is overdue."""
    return now - ended_at >= UNCLEARED and not whole


def between(
    sent_at: datetime | None,
    ran_at: datetime | None,
    asked_at: datetime | None,
    ended_at: datetime,
    gpu_usd_h: Decimal,
    rule: BillingRule,
) -> tuple[Decimal, Decimal]:
    """Return the least and most that a GPU can have cost if its cloud reports neither run time nor charge.

    It was billed at least from the first poll that showed it running until its end was ordered, and at most from the
    moment that its create was sent until it was gone.
    """
    stopped_at = min(asked_at or ended_at, ended_at)
    least = so_far(ran_at, stopped_at, gpu_usd_h, rule)
    return least, max(least, so_far(sent_at, ended_at, gpu_usd_h, rule))
