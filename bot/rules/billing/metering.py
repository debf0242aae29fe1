"""Turn billed time into accruals: each hour when it completes, and one last piece when the end is known.

The sum of all pieces equals what the cloud bills for the whole time: rate × duration, rounded up to its quantum and at
least its minimum. Source of the rules: each adapter's `BillingRule`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal

from ledger.kernel import money
from providers.capabilities import BillingRule

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Piece:
    """Describe one accrual: `suffix` makes its ledger key unique within (instance, component), `until` ends it."""

    suffix: str
    amount_usd: Decimal
    until: datetime


def pieces(start: datetime, until: datetime, rate_usd_h: Decimal, rule: BillingRule, *, final: bool) -> list[Piece]:
    """List the accruals due for [start, until): the completed hours and, with `final`, also the rest."""
    used_s = max(Decimal(0), seconds(start, until))
    whole = completed(start, until)
    hourly = money.amount(rate_usd_h)
    found = [
        Piece(hour_suffix(hour), hourly, start + timedelta(seconds=HOUR_S * (hour + 1)))
        for hour in range(whole)
        if hourly > 0
    ]
    if final:
        # An instance that was ended at once existed all the same, and a cloud with a minimum bills it.
        least = Decimal(1) if rule.minimum_s and start <= until else Decimal(0)
        rest = amount(max(used_s, least), rate_usd_h, rule) - hourly * whole
        if rest > 0:
            found.append(Piece("final", rest, until))
    return found


def rate_step(start: datetime, at: datetime, old_usd_h: Decimal, new_usd_h: Decimal) -> Decimal:
    """Return the correction for the running hour when the rate changes.

    That hour is booked at the new rate, and its part before the change cost the old one. Negative when the rate rose.
    """
    used_s = max(Decimal(0), seconds(start, at))
    return money.amount((old_usd_h - new_usd_h) * (used_s - HOUR_S * completed(start, at)) / HOUR_S)


def seconds(since: datetime, until: datetime) -> Decimal:
    """Return the seconds from one moment to another, with their fractions."""
    return Decimal(str((until - since) / timedelta(seconds=1)))


def completed(start: datetime, until: datetime) -> int:
    """Count the completed hours of [start, until)."""
    return max((until - start) // timedelta(seconds=HOUR_S), 0)


def is_booked(rate_usd_h: Decimal) -> bool:
    """Whether an hour at this rate costs anything in the ledger's own unit, a millionth of a dollar."""
    return money.amount(rate_usd_h) > 0


def hour_suffix(hour: int) -> str:
    """Return the key suffix of the accrual for one completed hour, counted from 0."""
    return f"h{hour}"


def amount(used_s: Decimal, rate_usd_h: Decimal, rule: BillingRule) -> Decimal:
    """Return the dollars for a duration at a rate, by the cloud's quantum and minimum. Nothing used costs nothing."""
    if used_s <= 0:
        return Decimal(0)
    quanta = (used_s / rule.quantum_s).to_integral_value(rounding=ROUND_CEILING)
    billed = max(quanta * rule.quantum_s, Decimal(rule.minimum_s))
    return money.amount(rate_usd_h * billed / HOUR_S)


def running(start: datetime | None, until: datetime, rate_usd_h: Decimal, rule: BillingRule, booked_h: int) -> Decimal:
    """Return the dollars of [start, until) beyond the `booked_h` booked whole hours: what ending now would add."""
    if start is None:
        return Decimal(0)
    unbooked = pieces(start, until, rate_usd_h, rule, final=True)[booked_h:]
    return sum((piece.amount_usd for piece in unbooked), Decimal(0))


def at_other_rates(booked_usd: Decimal, hours: Iterable[tuple[int, Decimal]]) -> Decimal:
    """Return the booked dollars that today's rates do not explain; negative if earlier rates were lower.

    `hours` are the booked whole hours of each component with its dollars per hour of now. While these stay the same, so
    does the result, however much time passes.
    """
    return booked_usd - sum((number * money.amount(rate_usd_h) for number, rate_usd_h in hours), Decimal(0))


def so_far(start: datetime | None, now: datetime, rate_usd_h: Decimal, rule: BillingRule) -> Decimal:
    """Return the cost since `start`, the running hour included; for display, never for booking."""
    if start is None:
        return Decimal(0)
    return amount(seconds(start, now), rate_usd_h, rule)
