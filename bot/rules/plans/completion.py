"""Forecast what a running job still takes and costs, against its approval, and compute what a success has cost.

Pure arithmetic on a step, a target and a rate of tokens; where the numbers come from is no concern of this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.phrases import plural, usd
from ledger.kernel import money

_ZERO = Decimal(0)
#: Longer is not a forecast: ten years.
MOST_HOURS = Decimal(87_600)
#: A rate that was seen only once may be this far off in either direction.
LONE_SPREAD = Decimal("0.25")
#: Of the rates that were seen, the range leaves out a tenth on each side.
TAIL = 10


class Outlook(StrEnum):
    DONE = "done"
    WITHIN = "within"
    AT_RISK = "at_risk"
    OVER = "over"
    NO_RATE = "no_rate"


@dataclass(frozen=True, slots=True)
class Rate:
    """Hold tokens per second over all GPUs, with `low` <= `expected` <= `high`, all above zero."""

    expected: Decimal
    low: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True)
class ApprovedScope:
    """Hold what was approved and used up: dollars, hours and the price per hour of everything that is billed."""

    price_usd_h: Decimal
    spent_usd: Decimal = _ZERO
    approved_usd: Decimal | None = None
    hours_left: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Hold a number in three cases."""

    best: Decimal
    expected: Decimal
    worst: Decimal


@dataclass(frozen=True, slots=True)
class Completion:
    """Hold what is left of a job.

    `total_usd` includes what was spent; `short_usd` and `short_hours` are how much more than approved the expected case
    takes, 0 where it is inside. `hours` and `total_usd` are None without a rate.
    """

    outlook: Outlook
    steps_left: int
    hours: Scenarios | None
    total_usd: Scenarios | None
    short_usd: Decimal
    short_hours: Decimal
    sentence: str


def rate_from(samples: Sequence[Decimal]) -> Rate | None:
    """Estimate the rate behind measured tokens/s: their median, and the range without a tenth on each side.

    None when nothing usable was measured: zero, negative and infinite rates are left out. A single one gets a wide
    range.
    """
    seen = sorted(sample for sample in samples if sample.is_finite() and sample > 0)
    if not seen:
        return None
    middle = seen[len(seen) // 2] if len(seen) % 2 else (seen[len(seen) // 2 - 1] + seen[len(seen) // 2]) / 2
    if len(seen) == 1:
        return Rate(middle, middle * (1 - LONE_SPREAD), middle * (1 + LONE_SPREAD))
    cut = len(seen) // TAIL
    return Rate(middle, seen[cut], seen[-1 - cut])


def to_completion(
    step: int, target_step: int, tokens_per_step: int, rate: Rate | None, scope: ApprovedScope
) -> Completion:
    """Forecast what the steps from `step` to `target_step` still take at `rate`, and whether `scope` covers it.

    ValueError for a step below zero, for a target or a step size below one, and for amounts that are not finite.
    """
    _check(step, target_step, tokens_per_step, scope)
    left = max(target_step - step, 0)
    if left == 0:
        spent = Scenarios(scope.spent_usd, scope.spent_usd, scope.spent_usd)
        sentence = f"Step {step:,} of {target_step:,}: nothing is left to compute; {usd(scope.spent_usd)} were spent."
        return Completion(Outlook.DONE, 0, Scenarios(_ZERO, _ZERO, _ZERO), spent, _ZERO, _ZERO, sentence)
    hours = _hours(left * tokens_per_step, rate)
    if hours is None:
        why = "no rate of tokens is known" if rate is None else "the rate is too low for a forecast"
        sentence = f"{plural(left, 'step')} left; {why}, so its end can't be predicted."
        return Completion(Outlook.NO_RATE, left, None, None, _ZERO, _ZERO, sentence)
    total = Scenarios(*(_total(scope, case) for case in (hours.best, hours.expected, hours.worst)))
    short_usd = max(total.expected - scope.approved_usd, _ZERO) if scope.approved_usd is not None else _ZERO
    short_hours = max(hours.expected - scope.hours_left, _ZERO) if scope.hours_left is not None else _ZERO
    outlook = _outlook(hours, total, scope)
    expected = f"{_range(hours, say_hours)}, {_range(total, usd)} in all"
    sentence = f"{plural(left, 'step')} left: {expected}. {_verdict(outlook, scope)}"
    if short_usd:
        sentence += f" Expected {usd(short_usd)} above the approval."
    if short_hours:
        sentence += f" Expected {say_hours(short_hours)} beyond the approved end."
    return Completion(outlook, left, hours, total, short_usd, short_hours, sentence)


def _check(step: int, target_step: int, tokens_per_step: int, scope: ApprovedScope) -> None:
    if step < 0 or target_step < 1 or tokens_per_step < 1:
        raise ValueError(
            f"step {step} of {target_step} with {tokens_per_step} tokens each is not progress; "
            "a step is 0 or more, a target and a step's tokens are 1 or more"
        )
    amounts = (scope.price_usd_h, scope.spent_usd, scope.approved_usd or _ZERO, scope.hours_left or _ZERO)
    if any(not amount.is_finite() or amount < 0 for amount in amounts):
        raise ValueError("prices, amounts and hours must be finite and not negative")


def _hours(tokens: int, rate: Rate | None) -> Scenarios | None:
    if rate is None or Decimal(tokens) / rate.low > MOST_HOURS * 3600:
        return None
    cases = (Decimal(tokens) / case / 3600 for case in (rate.high, rate.expected, rate.low))
    return Scenarios(*(money.half_up(case, 6) for case in cases))


def _total(scope: ApprovedScope, hours: Decimal) -> Decimal:
    return money.amount(scope.spent_usd + scope.price_usd_h * hours)


def _outlook(hours: Scenarios, total: Scenarios, scope: ApprovedScope) -> Outlook:
    usd_limit, hour_limit = scope.approved_usd, scope.hours_left
    over = (usd_limit is not None and total.expected > usd_limit) or (
        hour_limit is not None and hours.expected > hour_limit
    )
    risky = (usd_limit is not None and total.worst > usd_limit) or (hour_limit is not None and hours.worst > hour_limit)
    return Outlook.OVER if over else Outlook.AT_RISK if risky else Outlook.WITHIN


def _verdict(outlook: Outlook, scope: ApprovedScope) -> str:
    if scope.approved_usd is None and scope.hours_left is None:
        return "Nothing was approved to compare with."
    return {
        Outlook.WITHIN: "Inside the approval even in the worst case.",
        Outlook.AT_RISK: "Inside the approval as expected, beyond it in the worst case.",
    }.get(outlook, "Beyond the approval.")


def _range(of: Scenarios, say: Callable[[Decimal], str]) -> str:
    return f"{say(of.expected)} ({say(of.best)} to {say(of.worst)})"


# ── what a success costs ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """Describe one finished job: what it cost in all, and whether its owner called it a success."""

    cost_usd: Decimal
    succeeded: bool


@dataclass(frozen=True, slots=True)
class SuccessCost:
    """Hold the real cost of a success: all spending, failures included, over the successes. None of 0."""

    runs: int
    successes: int
    spent_usd: Decimal
    success_rate: Decimal | None
    per_success_usd: Decimal | None
    sentence: str


def cost_per_success(outcomes: Iterable[FinishedJob]) -> SuccessCost:
    """Return what finished jobs have cost per success, in dollars rounded to cents."""
    finished = list(outcomes)
    spent = sum((one.cost_usd for one in finished), _ZERO)
    successes = sum(one.succeeded for one in finished)
    share = Decimal(successes) / len(finished) if finished else None
    each = money.cents(spent / successes) if successes else None
    if each is None:
        sentence = f"{plural(len(finished), 'finished run')}, no success yet; {usd(spent)} were spent."
    else:
        sentence = f"{successes} of {plural(len(finished), 'finished run')} succeeded: {usd(each)} per success."
    return SuccessCost(len(finished), successes, spent, share, each, sentence)
