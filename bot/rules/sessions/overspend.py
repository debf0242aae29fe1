"""Judge whether a session will overspend what was approved for it, and write the question about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.values.phrases import rate, usd
from ledger.kernel import money


@dataclass(frozen=True, slots=True)
class SpendForecast:
    """Hold what a session has cost, what it is billed, and until when it is expected to run.

    `approved_usd` is the estimate that was approved or confirmed last, with what extensions added; `cap_usd` is the
    most that it may cost. `free_boot_usd` is what the typical boot would cost where the estimate left it out: a machine
    that boots faster is no overspend.
    """

    approved_usd: Decimal
    cap_usd: Decimal
    spent_usd: Decimal
    price_usd_h: Decimal
    until: datetime
    free_boot_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Agreed:
    """Hold what people agreed to after the first approval: `hours` more, or (None) a new figure for all of it."""

    at: datetime
    expected_usd: Decimal
    hours: Decimal | None


@dataclass(frozen=True, slots=True)
class Approved:
    """Hold what was approved first (estimate, cap, estimated hours where known), and what followed."""

    expected_usd: Decimal
    cap_usd: Decimal
    hours: Decimal | None
    after: tuple[Agreed, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """Describe an instance: since when it exists, its cost with that of those before it, and its rate."""

    began_at: datetime
    spent_usd: Decimal
    price_usd_h: Decimal


def spend_forecast(
    first: Approved, seen: Seen, deadline: datetime, eta: datetime | None, now: datetime
) -> SpendForecast:
    """Forecast a running session's spend. A confirmed figure replaces all that was approved before it."""
    longer = [one for one in first.after if one.hours is not None]
    figures = [one for one in first.after if one.hours is None]
    approved_usd, counted = first.expected_usd, longer
    if figures:
        approved_usd = figures[-1].expected_usd
        counted = [one for one in longer if one.at > figures[-1].at]
    approved_usd += sum((one.expected_usd for one in counted), Decimal(0))
    estimated = first.hours
    if estimated is not None:
        estimated += sum((one.hours for one in longer if one.hours is not None), Decimal(0))
    until = expected_end(deadline, seen.began_at, estimated, eta, now)
    return SpendForecast(approved_usd, first.cap_usd, seen.spent_usd, seen.price_usd_h, until)


def expected_end(
    deadline: datetime, began_at: datetime, estimated_hours: Decimal | None, eta: datetime | None, now: datetime
) -> datetime:
    """Return the expected end: as its agent reports, else as estimated, and never after the approved end."""
    if eta is None and estimated_hours is not None:
        eta = began_at + timedelta(seconds=float(estimated_hours * 3600))
    return max(min(eta or deadline, deadline), min(now, deadline))


def projected(course: SpendForecast, now: datetime) -> Decimal:
    """Return the dollars that it will have cost at its end as things are, and never more than its cap."""
    left_h = Decimal(max((course.until - now).total_seconds(), 0)) / 3600
    return min(course.spent_usd + left_h * course.price_usd_h, max(course.cap_usd, course.spent_usd))


def is_over(course: SpendForecast, tolerance: Decimal, now: datetime) -> bool:
    """Whether that is above what was approved times the tolerance (a factor) by more than a cent."""
    return projected(course, now) > (course.approved_usd + course.free_boot_usd) * tolerance + money.CENT


def question(course: SpendForecast, answer_min: int, *, can_pause: bool, now: datetime) -> str:
    """Ask the owner and the approvers to confirm the cost, and say what follows without an answer."""
    figure = usd(projected(course, now))
    cost = f"It was approved at about {usd(course.approved_usd)} and will cost about {figure}"
    why = f"{usd(course.spent_usd)} so far, at {rate(course.price_usd_h)}"
    without = f"Without an approval within {answer_min} minutes"
    if can_pause:
        return f"{cost} ({why}). {without} it is stopped, and its disk stays."
    ends = f"It ends at the approved {usd(course.cap_usd)} or at its approved end."
    return f"{cost} ({why}). {without} its agent saves a checkpoint. {ends}"
