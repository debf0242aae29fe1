"""Compare the ledger with a cloud's own bill: when the bill of an instance is complete, and what to correct."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.billing.metering import so_far
from ledger.kernel import money
from providers.capabilities import BillingRule

#: A bill is cut into hours by some clouds, so its last line may end a little before the instance did.
SLACK = timedelta(hours=1)
#: A total that reaches beyond an instance's end does not show how far it has come: it counts as complete after this.
SETTLED = timedelta(days=2)
#: An instance without a complete bill for so long raises an alarm.
UNCLEARED = timedelta(days=4)


@dataclass(frozen=True, slots=True)
class BillLineItem:
    """Describe one line of a cloud's bill about one instance."""

    component: str
    amount_usd: Decimal
    begins: datetime
    ends: datetime


def is_whole(lines: Collection[BillLineItem], billed_from: datetime | None, ended_at: datetime, now: datetime) -> bool:
    """Whether the bill's lines cover an instance's whole time and are known to be complete."""
    if not lines:
        return False
    first, last = min(line.begins for line in lines), max(line.ends for line in lines)
    if last > ended_at + SLACK and now - ended_at < SETTLED:
        return False
    return last >= ended_at - SLACK and (billed_from is None or first <= billed_from + SLACK)


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


def is_late(ended_at: datetime, now: datetime, lines: Collection[BillLineItem], *, whole: bool) -> bool:
    """Whether a bill is overdue."""
    return now - ended_at >= UNCLEARED and not (lines and whole)


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
