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


def pieces(
    start: datetime,
    until: datetime,
    rate_usd_h: Decimal,
    rule: BillingRule,
    *,
    final: bool,
    stopped_s: int = 0,
    first_hour: int = 0,
) -> list[Piece]:
    """List the accruals due for [start, until): the completed hours from `first_hour` on and, with `final`, the rest.

    The first `stopped_s` seconds were booked at a stop; the hour in which they end is due without them.
    """
    whole = completed(start, until)
    hourly = money.amount(rate_usd_h)
    found = [
        Piece(
            hour_suffix(hour),
            _between(max(hour * HOUR_S, min(stopped_s, (hour + 1) * HOUR_S)), (hour + 1) * HOUR_S, rate_usd_h),
            start + timedelta(seconds=HOUR_S * (hour + 1)),
        )
        for hour in range(first_hour, whole)
        if hourly > 0
    ]
    if final:
        used_s = max(Decimal(0), seconds(start, until))
        # An instance that was ended at once existed all the same, and a cloud with a minimum bills it.
        least = Decimal(1) if rule.minimum_s and start <= until else Decimal(0)
        rest = amount(max(used_s, least), rate_usd_h, rule) - _between(0, max(whole * HOUR_S, stopped_s), rate_usd_h)
        if rest > 0:
            found.append(Piece("final", rest, until))
    return found


def at_stop(
    start: datetime, until: datetime, rate_usd_h: Decimal, rule: BillingRule, stopped_s: int
) -> tuple[Piece | None, int]:
    """Return the accrual for the hour that a stop cuts short, and how many seconds are booked with it in all.

    None where nothing of that hour is left to book. `stopped_s` are the seconds booked at earlier stops.
    """
    hours = completed(start, until)
    # The last second is left to the hour's own accrual, by which whole hours are counted.
    used_s = min(billed_s(seconds(start, until), rule), (hours + 1) * HOUR_S - 1)
    before_s = max(hours * HOUR_S, stopped_s)
    if used_s <= before_s:
        return None, stopped_s
    return Piece(f"stop-{used_s}", _between(before_s, used_s, rate_usd_h), until), used_s


def booked_at_stops(rate_usd_h: Decimal, stopped_s: int, hours: int) -> Decimal:
    """Return the dollars that stops booked of the hour that runs, after `hours` booked whole hours."""
    return _between(hours * HOUR_S, max(stopped_s, hours * HOUR_S), rate_usd_h)


def _between(first_s: int, last_s: int, rate_usd_h: Decimal) -> Decimal:
    """Return the dollars from one second of use to another: whole hours are whole, and parts add up to their hour."""
    return _up_to(last_s, rate_usd_h) - _up_to(first_s, rate_usd_h)


def _up_to(used_s: int, rate_usd_h: Decimal) -> Decimal:
    whole, rest_s = divmod(used_s, HOUR_S)
    if not rest_s:
        return money.amount(rate_usd_h) * whole
    return money.amount(rate_usd_h) * whole + money.amount(rate_usd_h * rest_s / HOUR_S)


def rate_step(start: datetime, at: datetime, old_usd_h: Decimal, new_usd_h: Decimal, stopped_s: int = 0) -> Decimal:
    """Return the correction for the running hour when the rate changes.

    That hour is booked at the new rate, and its part before the change cost the old one. Negative when the rate rose.
    What was booked at a stop has its own rate.
    """
    used_s = max(Decimal(0), seconds(start, at))
    before_s = max(HOUR_S * completed(start, at), stopped_s)
    return money.amount((old_usd_h - new_usd_h) * max(used_s - before_s, Decimal(0)) / HOUR_S)


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
    return money.amount(rate_usd_h * billed_s(used_s, rule) / HOUR_S)


def billed_s(used_s: Decimal, rule: BillingRule) -> int:
    """Return the seconds that a cloud bills for a duration, by its quantum and minimum."""
    if used_s <= 0:
        return 0
    quanta = int((used_s / rule.quantum_s).to_integral_value(rounding=ROUND_CEILING))
    return max(quanta * rule.quantum_s, rule.minimum_s)


def paid_s(cap_usd: Decimal, rate_usd_h: Decimal, rule: BillingRule, most_s: int) -> int:
    """Return the longest time that an amount pays for, in seconds: whole steps of the bill, at most `most_s`.

    A step that has started is billed in full, so a step that is paid in part is not used.
    """
    if rate_usd_h <= 0 or amount(Decimal(most_s), rate_usd_h, rule) <= cap_usd:
        return most_s
    # What is booked is rounded, so the division alone may be a step off.
    step_usd = rate_usd_h * rule.quantum_s / HOUR_S
    steps = int((max(cap_usd, Decimal(0)) + money.MICRO_USD) / step_usd)
    while steps and money.amount(step_usd * steps) > cap_usd:
        steps -= 1
    return min(steps * rule.quantum_s, most_s)


def running(
    start: datetime | None,
    until: datetime,
    rate_usd_h: Decimal,
    rule: BillingRule,
    booked_h: int,
    stopped_s: int = 0,
) -> Decimal:
    """Return the dollars of [start, until) beyond the `booked_h` booked whole hours: what ending now would add."""
    whole = completed(start, until) if start is not None else 0
    if start is None or booked_h > whole:
        return Decimal(0)
    if not stopped_s and start <= until:
        # What `pieces` adds up to where no stop was booked: the costs of a whole fleet are read each minute.
        hourly = money.amount(rate_usd_h)
        used_s = max(seconds(start, until), Decimal(1 if rule.minimum_s else 0))
        rest = amount(used_s, rate_usd_h, rule) - hourly * whole
        return hourly * (whole - booked_h) + max(rest, Decimal(0))
    unbooked = pieces(start, until, rate_usd_h, rule, final=True, stopped_s=stopped_s, first_hour=booked_h)
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
