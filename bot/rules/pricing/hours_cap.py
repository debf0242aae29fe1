"""Compare hours with the cap: `max_hours` in all without an override, and a bound that no override passes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum

from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import hour_limit
from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.reply_code import ReplyCode

SHORTEST_HOURS = Decimal(1) / 60
STEP_HOURS = Decimal("0.25")
_ZERO = Decimal(0)


class DurationOutcome(StrEnum):
    OK = "ok"
    NEEDS_OVERRIDE = "needs_override"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DurationVerdict:
    """Say what may happen with a number of hours.

    `code` says why, `total_hours` includes what was already approved.
    """

    outcome: DurationOutcome
    code: ReplyCode
    sentence: str
    total_hours: Decimal

    @property
    def allowed(self) -> bool:
        """Whether it may continue at all, with or without an override."""
        return self.outcome is not DurationOutcome.REFUSED

    @property
    def needs_override(self) -> bool:
        """Whether an override must be approved first."""
        return self.outcome is DurationOutcome.NEEDS_OVERRIDE


def left(policy: Policy, total_h: Decimal, allowed_h: Decimal = _ZERO) -> Decimal:
    """Return the hours left below `max_hours`, or below what an approved override allows; negative above it.

    Every comparison with the cap is made here. `total_h` is all that a session has had and would have.
    """
    return max(policy.max_hours, allowed_h) - total_h


def is_above(policy: Policy, total_h: Decimal, allowed_h: Decimal = _ZERO) -> bool:
    """Whether so many hours in all need an override, or a longer one than that for `allowed_h`."""
    return left(policy, total_h, allowed_h) < 0


def check(hours: Decimal, already_hours: Decimal, policy: Policy) -> DurationVerdict:
    """Judge `hours` more on top of `already_hours` of the same session, against the policy's caps.

    Zero, negative, infinite and NaN hours are refused, and so is a total above `max_hours_ever`.
    """
    if not hours.is_finite():
        return _refused(ReplyCode.NOT_A_NUMBER, f"{hours} is not a time. Write it like 6h or 90m.", already_hours)
    if hours <= 0:
        return _refused(ReplyCode.NOT_POSITIVE, "The time must be above zero. Write it like 6h or 90m.", already_hours)
    if hours < SHORTEST_HOURS:
        return _refused(ReplyCode.TOO_SHORT, "The shortest time is one minute. Write it like 6h or 90m.", already_hours)
    total = hours + already_hours
    if total > policy.max_hours_ever:
        sentence = f"{say_hours(total)} is above the limit of {say_hours(policy.max_hours_ever)}. Request less time."
        return _refused(ReplyCode.TOO_LONG, sentence, total)
    if is_above(policy, total):
        limit = hour_limit(policy.max_hours)
        sentence = (
            f"{say_hours(total)} in all is above {say_hours(policy.max_hours)}, which needs the {limit} override."
        )
        return DurationVerdict(DurationOutcome.NEEDS_OVERRIDE, ReplyCode.NEEDS_OVERRIDE, sentence, total)
    return DurationVerdict(DurationOutcome.OK, ReplyCode.OK, f"{say_hours(total)} in all is within the limit.", total)


def rented(needed_h: Decimal) -> Decimal:
    """Round `needed_h`, what a run needs at worst, up to a part of an hour that people read."""
    return (needed_h / STEP_HOURS).to_integral_value(ROUND_CEILING) * STEP_HOURS


def _refused(code: ReplyCode, sentence: str, total: Decimal) -> DurationVerdict:
    return DurationVerdict(DurationOutcome.REFUSED, code, sentence, total)
