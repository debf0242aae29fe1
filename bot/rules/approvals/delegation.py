"""Judge who may name a delegate, and until when."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from bot.rules.approvals.approvers import DeciderFacts, Deed, ineligible, is_approver, is_same, linked, never
from bot.rules.approvals.decision import SLACK_OFF
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict, deny, plural
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind


def last_moment(until: date) -> datetime:
    """Return the end of a day in UTC; a delegation until that day includes it."""
    return datetime.combine(until + timedelta(days=1), time(), UTC)


def may_delegate(policy: Policy, who: DeciderFacts, to: Actor | None, until: date | None, now: datetime) -> Verdict:
    """Whether somebody may name a delegate to approve in their place.

    Only rights that the policy gives can be passed on.
    """
    usable = ineligible(policy, who, Deed.APPROVE) is None
    if not usable or who.actor.is_program or not is_approver(policy, who):
        return deny(ReplyCode.NOT_AN_APPROVER, "Only approvers can name a delegate.")
    if to is not None and who.actor.kind is ActorKind.SLACK and not policy.allow_slack_decisions:
        return SLACK_OFF  # People who click in Slack decide nothing there, so they name no delegate there either.
    if to is None or until is None:
        return deny(ReplyCode.BAD_DELEGATE, "Name your delegate and the last day: @who until 2026-12-01.")
    if to.kind not in (ActorKind.SLACK, ActorKind.OPERATOR):
        return deny(ReplyCode.BAD_DELEGATE, "Only a person can be a delegate: @who or operator:ada.")
    if any(is_same(one, to) for one in (who.actor, *linked(policy, who.actor))):
        return deny(ReplyCode.OWN_DELEGATE, "You can't be your own delegate. Name somebody else.")
    if never(policy, to):
        return deny(ReplyCode.DENIED_DELEGATE, "The policy doesn't let this person approve.")
    if not now < last_moment(until) <= last_moment(now.date() + timedelta(days=policy.delegation_days)):
        most = plural(policy.delegation_days, "day")
        return deny(ReplyCode.BAD_UNTIL, f"Give a last day from today to {most} from now.")
    return Verdict(True, ReplyCode.OK, "")
