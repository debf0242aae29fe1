"""Decide whether a session may get another owner: the approvals that it has must be enough for that person, too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.rules.approvals.approvers import DeciderFacts, is_approver_of, is_same, linked, person_key
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, group_of
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind

#: How long somebody may accept an offer.
OFFERED_FOR = timedelta(hours=24)


def expires(now: datetime, ends_at: datetime | None) -> datetime:
    """Return when an offer expires: after a day, or at the end of the session."""
    latest = now + OFFERED_FOR
    return latest if ends_at is None else max(min(latest, ends_at), now)


def approved_for(
    policy: Policy,
    to: Actor,
    votes: Sequence[DeciderFacts],
    needed: ApprovalPlan,
    mandate: ApproverGroup,
    *,
    above_cap: bool,
) -> Verdict | None:
    """Return why the approvals of a session (`votes`) are not enough for a new owner; None when they are.

    `needed` and `mandate` are what the policy wants of that person for what the run may cost in all. Above the
    hours' cap nobody approves their own time, whatever the policy allows.
    """
    names = (to, *linked(policy, to))
    people = [one for one in votes if one.actor.kind is not ActorKind.SYSTEM]
    own = any(is_same(vote.actor, name) for vote in people for name in names)
    if own and (above_cap or not policy.allow_self_approval):
        sentence = f"{to.ref} approved this session, and nobody may approve their own spend."
        return deny(ReplyCode.TRANSFER_NOT_APPROVED, f"{sentence} Transfer it to somebody else.")
    counting = {person_key(policy, one.actor) for one in people if is_approver_of(policy, one, mandate)}
    if len(counting) >= needed.required:
        return None
    sentence = (
        f"For {to.ref} the policy wants other approvals of what the session may cost in all. {needed.rule} It has "
        f"{len(counting) or 'none'} from {group_of(mandate.tier)}. {to.ref} can request a machine instead."
    )
    return deny(ReplyCode.TRANSFER_NOT_APPROVED, sentence)
