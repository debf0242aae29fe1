"""Extend a session: what is inside what was approved already, and what an extension would cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.approvers import names_of
from bot.rules.approvals.decision import DeciderFacts, is_approver
from bot.rules.market.estimate import Component, Estimate
from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap
from bot.rules.values.phrases import at_rate
from bot.rules.values.phrases import hours as say_hours
from ledger.kernel import money

#: A difference below this is the rounding of a started second.
ROUNDING = timedelta(seconds=1)


def may_act(policy: Policy, who: DeciderFacts, *, own: bool) -> bool:
    """Whether somebody may act on a session: its owner (`own`), an approver, or a fallback contact."""
    if not who.known or not who.team_ok or who.is_deleted:
        return False
    contact = not who.actor.is_program and not names_of(policy, who.actor).isdisjoint(policy.fallback_contacts)
    # Guests and bots approve nothing, so no list of approvers lets them end other people's sessions.
    decides = is_approver(policy, who) and not who.is_guest and not who.is_bot
    return own or contact or decides


def is_inside(deadline: datetime, extra_hours: Decimal, approved_until: datetime) -> bool:
    """Whether a later end is still inside the time and the amount that were approved."""
    return later(deadline, extra_hours) <= approved_until + ROUNDING


def later(at: datetime, extra_hours: Decimal) -> datetime:
    """Add so many hours to `at`, to a hundredth of a second: hours have six places, and ten minutes are ten minutes."""
    return at + timedelta(seconds=float(money.half_up(extra_hours * 3600, 2)))


def estimate(price_usd_h: Decimal, extra_hours: Decimal, policy: Policy) -> Estimate:
    """Estimate the extra time: the rate that is billed now, and at worst the tolerance that an approval covers."""
    expected = price_usd_h * extra_hours
    worst = expected * policy.price_tolerance
    assumed = f"{say_hours(extra_hours)} more {at_rate(price_usd_h)}, which is what the cloud bills now."
    return Estimate(expected, expected, worst, extra_hours, (Component("compute", expected, worst),), (assumed,))


def override_sentence(already_hours: Decimal, extra_hours: Decimal, policy: Policy) -> str:
    """Write the sentence for time beyond the cap; empty below it.

    Then somebody other than the requester approves, whatever the policy allows.
    """
    total = already_hours + extra_hours
    if not hours_cap.is_above(policy, total):
        return ""
    cap = f"the limit of {say_hours(policy.max_hours)}"
    return f"{say_hours(total)} in all is above {cap}, so this needs a reason and another person's approval."
