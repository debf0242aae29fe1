"""Start without an approval (break-glass): a person whom the policy names may do so within tight limits.

The amount is small, the time is short, and every approver is notified.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Final

from bot.rules.approvals.approvers import DeciderFacts, Deed, ineligible, names_of, never, slack_accounts
from bot.rules.approvals.decision import SLACK_OFF
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap
from bot.rules.values.phrases import Verdict, deny, hours, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import ActorKind

#: What the rule of a request that was started without an approval begins with.
BREAK_GLASS: Final = "Break-glass:"
#: What one person starts without an approval in this time counts together.
PERIOD: Final = timedelta(hours=24)


def may_break_glass(policy: Policy, who: DeciderFacts, *, own: bool, reason: str) -> Verdict:
    """Whether somebody may start their own request without an approval."""
    actor = who.actor
    usable = ineligible(policy, who, Deed.APPROVE) is None
    named = bool(names_of(policy, actor) & set(policy.break_glass)) and not never(policy, actor)
    if not usable or not named or actor.is_program:
        return deny(ReplyCode.NO_BREAK_GLASS, "The policy doesn't let you start without an approval.")
    if actor.kind is ActorKind.SLACK and not policy.allow_slack_decisions:
        return SLACK_OFF
    if not own:
        return deny(ReplyCode.NOT_YOURS, "Only the requester can start it without an approval.")
    if not reason.strip():
        return deny(ReplyCode.REASON_NEEDED, "Say why it can't wait. Every approver will read it.")
    if wrong := job_bounds.reason(reason, policy):
        return deny(*wrong)
    return Verdict(True, ReplyCode.BREAK_GLASS, "")


def inside_hours(policy: Policy, total_h: Decimal, allowed_h: Decimal) -> Verdict:
    """Whether a session stays within the hours cap, or within the hours (`allowed_h`) of an approved override.

    `total_h` is all that it has had and would have, with its checkpoint hold at the end.
    """
    if not hours_cap.is_above(policy, total_h, allowed_h):
        return Verdict(True, ReplyCode.OK, "")
    sentence = (
        f"{hours(total_h)} in all, earlier time included, is above {hours(policy.max_hours)}. "
        "An approver must approve the override first."
    )
    return deny(ReplyCode.OVERRIDE_FIRST, sentence)


def left(policy: Policy, taken_usd: Decimal) -> Decimal:
    """Return the dollars that somebody has left for break-glass, after `taken_usd` in the last `PERIOD`."""
    return max(policy.break_glass_usd - taken_usd, Decimal(0))


def fits(policy: Policy, expected_usd: Decimal, cap_usd: Decimal, left_usd: Decimal) -> Verdict:
    """Whether an option is cheap enough; `cap_usd` is the most that it may cost in all, `left_usd` the amount left."""
    if cap_usd <= 0 or expected_usd > cap_usd:
        limit = hours(policy.break_glass_hours)
        sentence = (
            f"Without an approval it may cost {usd(cap_usd)} in {limit} at most, and this is expected to cost "
            f"{usd(expected_usd)}; of {usd(policy.break_glass_usd)} in 24 hours, {usd(left_usd)} is left to you. "
            "Name a cheaper offer, or wait for the approval."
        )
        return deny(ReplyCode.ABOVE_BREAK_GLASS, sentence)
    return Verdict(True, ReplyCode.OK, "")


def announcement(person: str, what: str, time_h: Decimal, cap_usd: Decimal, reason: str) -> str:
    """Write the break-glass announcement that everybody reads."""
    return (
        f"{BREAK_GLASS} {person} started {what} without an approval, for {hours(time_h)} and at most {usd(cap_usd)}. "
        f"Reason: {reason.strip()}"
    )


def audience(policy: Policy) -> tuple[str, ...]:
    """Return the Slack people who are notified directly: all approvers and budget administrators, mentioned or not."""
    names = (
        *policy.approvers,
        *policy.may_approve_not_pinged,
        *policy.budget_admins,
        *(name for group in policy.approval_groups.values() for name in group),
    )
    return slack_accounts(policy, names)
