"""Guard spending (the spend gate): what an approval covers, what a new price means, and who may change a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict, deny, rate, rates, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel import money

_ZERO = Decimal(0)


class RequoteOutcome(StrEnum):
    GO = "go"
    ASK_AGAIN = "ask_again"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class RequoteVerdict:
    """Say what a new quote means for an approval: create now, ask the approvers again, or try the next option."""

    outcome: RequoteOutcome
    code: ReplyCode
    sentence: str

    @property
    def allowed(self) -> bool:
        """Whether the create may be sent under the approval as it is."""
        return self.outcome is RequoteOutcome.GO


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Hold the total that an approver set for all attempts of a request, and the quote version it was set at."""

    version: int
    usd: Decimal
    by: str


def limit_in_force(limits: Iterable[SetLimit]) -> SetLimit | None:
    """Return the limit in force: the lowest one of the latest quote version at which an approver set any.

    A later version without a limit of its own lifts nothing; an approver who sets another one there does.
    """
    return min(limits, key=lambda one: (-one.version, one.usd), default=None)


def price_cap(quoted_usd_h: Decimal, policy: Policy, asked_usd_h: Decimal | None = None) -> Decimal:
    """Return the dollars per hour that an approval of `quoted_usd_h` covers, rounded down to whole micro-dollars.

    Never more than the price that the requester named. ValueError for a price that is not a finite number of dollars or
    is negative.
    """
    if not quoted_usd_h.is_finite() or quoted_usd_h < 0:
        raise ValueError(f"a quoted price must be a finite number of dollars, not {quoted_usd_h}")
    covered = quoted_usd_h * policy.price_tolerance
    lowest = covered if asked_usd_h is None else min(covered, asked_usd_h)
    return money.cap(lowest)


def requote(price_cap_usd_h: Decimal, fresh_usd_h: Decimal | None, *, free: bool = False) -> RequoteVerdict:
    """Judge the price of an approved offer just before its create; None means that the offer is no longer sold.

    Zero is a price only where the cloud is `free`; otherwise it is bad data, as a negative one and NaN are.
    """
    if fresh_usd_h is None:
        return RequoteVerdict(RequoteOutcome.GONE, ReplyCode.OFFER_GONE, "The approved offer is no longer for sale.")
    if bad_price(fresh_usd_h, free=free):
        sentence = "The approved offer no longer has a price, so it needs a new approval."
        return RequoteVerdict(RequoteOutcome.ASK_AGAIN, ReplyCode.PRICE_MISSING, sentence)
    if fresh_usd_h > price_cap_usd_h:
        now, approved = rates(fresh_usd_h, price_cap_usd_h)
        sentence = f"The price is now {now}, above the approved {approved}, so it needs a new approval."
        return RequoteVerdict(RequoteOutcome.ASK_AGAIN, ReplyCode.PRICE_MOVED, sentence)
    sentence = f"The price, {rate(fresh_usd_h)}, is within the approved {rate(price_cap_usd_h)}."
    return RequoteVerdict(RequoteOutcome.GO, ReplyCode.OK, sentence)


def bad_price(price_usd_h: Decimal | None, *, free: bool) -> bool:
    """Whether a price is bad data: missing, NaN, negative, absurdly high, or zero where the cloud is not free."""
    if price_usd_h is None or not price_usd_h.is_finite() or price_usd_h > money.MOST_USD_H:
        return True
    return price_usd_h < 0 or (price_usd_h == 0 and not free)


def billed_rate(billed_usd_h: Decimal | None, price_cap_usd_h: Decimal) -> Verdict:
    """Judge the rate that the cloud says it bills for a created instance against its grant's cap.

    Not allowed means: end the instance and request new offers. A rate that the cloud does not report is allowed, with
    its own code. A difference below one micro-dollar is rounding.
    """
    if billed_usd_h is None or not billed_usd_h.is_finite():
        return Verdict(True, ReplyCode.RATE_UNKNOWN, "The cloud doesn't report its rate, so the quoted price counts.")
    if billed_usd_h >= price_cap_usd_h + money.MICRO_USD:
        billed, approved = rates(billed_usd_h, price_cap_usd_h)
        sentence = (
            f"The cloud bills {billed}, above the approved {approved}. So the instance ends and needs a new approval."
        )
        return deny(ReplyCode.BILLED_ABOVE_CAP, sentence)
    sentence = f"The cloud bills {rate(billed_usd_h)}, within the approved {rate(price_cap_usd_h)}."
    return Verdict(True, ReplyCode.OK, sentence)


def total_cap(
    worst_usd: Decimal,
    *,
    asked_usd: Decimal | None = None,
    approver_usd: Decimal | None = None,
    spent_usd: Decimal = _ZERO,
) -> Decimal:
    """Return the most that this attempt may spend: its worst case, or what is left of a lower limit.

    `asked_usd` (the requester's) and `approver_usd` hold for all attempts together. 0 where nothing is left.
    """
    left = [limit - spent_usd for limit in (asked_usd, approver_usd) if limit is not None]
    return max(min([money.worst(worst_usd), *map(money.cap, left)]), _ZERO)


def change_cap(new_usd: Decimal, current_usd: Decimal, *, set_by_approver: bool, by_approver: bool) -> Verdict:
    """Whether a total cap may become `new_usd`. Anyone may lower it; only an approver may raise an approver's."""
    if not new_usd.is_finite() or new_usd <= 0:
        return deny(ReplyCode.BAD_AMOUNT, "A limit must be an amount above zero, such as $50.")
    if new_usd > current_usd and set_by_approver and not by_approver:
        sentence = f"The limit of {usd(current_usd)} was set by an approver. Only an approver can change it."
        return deny(ReplyCode.CAP_IS_APPROVERS, sentence)
    return Verdict(True, ReplyCode.OK, f"The limit is {usd(new_usd)}.")
