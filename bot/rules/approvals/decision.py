"""Judge one decision on a request.

Authorization is judged at the decision, from the policy and from facts fetched for it; never from who saw a button.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from bot.rules.approvals.amendments import AmendedTerms, may_shorten
from bot.rules.approvals.approvers import (
    ANYBODY,
    DeciderFacts,
    Deed,
    eligible_delegators,
    ineligible,
    is_approver,
    is_approver_of,
    is_same,
    linked,
    mentioned_approvers,
    person_key,
    references,
)
from bot.rules.approvals.authority import NOTHING, ApprovalPlan, Authority
from bot.rules.approvals.early import still_quoting
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, group_of
from bot.rules.pricing.spend_limits import SetLimit, change_cap, total_cap
from bot.rules.values.phrases import Verdict, deny, hour_limit, plural, read_amount, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel import money
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState

__all__ = [
    "SLACK_OFF",
    "DeciderFacts",
    "Decision",
    "DecisionInput",
    "RequestFacts",
    "chosen_delegator",
    "closed",
    "confirmed",
    "has_approved",
    "identity",
    "is_approver",
    "is_requester",
    "linked",
    "verdict",
]


class Decision(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """Describe a request at the moment of a decision.

    `linked` are other identities of the requester, as `linked` finds them. `approvals` are the references of those who
    approved this quote version, `chosen_offer_id` is what the first of them chose. `expected_usd` and `worst_usd`
    belong to the option that is decided on. `cap_usd` is what the first of two approvers left at most, `limit` the
    total that approvers set and `asked_usd` the one of the requester; all three are for all attempts together, of which
    earlier ones spent `spent_usd`. `decided_by` is how messages name the person who closed it, `mandate` the approvers
    who are asked about it now. `delegators` are those in whose place somebody approved already, `terms` the terms
    after the approvals so far, and `most_hours` the longest time that can be approved, None where it cannot be changed.
    """

    state: RequestState
    requester: Actor
    quote_version: int
    expires_at: datetime
    expected_usd: Decimal
    worst_usd: Decimal
    linked: tuple[Actor, ...] = ()
    approvals: tuple[str, ...] = ()
    chosen_offer_id: str | None = None
    cap_usd: Decimal | None = None
    limit: SetLimit | None = None
    asked_usd: Decimal | None = None
    spent_usd: Decimal = Decimal(0)
    decided_by: str = ""
    mandate: ApproverGroup = ANYBODY
    delegators: tuple[str, ...] = ()
    terms: AmendedTerms | None = None
    most_hours: Decimal | None = None
    #: The clouds whose offers are still being read.
    looking_at: tuple[str, ...] = ()
    #: What was approved earlier for the same run, on top of which this is decided.
    earlier: Authority = NOTHING

    @property
    def in_all_usd(self) -> Decimal:
        """Return the dollars that the run is expected to cost in all, which is what an approver types."""
        return self.expected_usd + self.earlier.expected_usd

    @property
    def limit_binds(self) -> bool:
        """Whether an approver's limit of an earlier quote leaves less than the worst case of this one."""
        carried = self.limit if self.limit is not None and self.limit.version < self.quote_version else None
        return carried is not None and carried.usd - self.spent_usd < self.worst_usd


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """Hold the approver's input.

    `typed_amount` is what they typed in the dialog; None when no dialog was shown yet. `hours` is a shorter time,
    `seen` the digest of the terms when they looked, where they saw one.
    """

    decision: Decision
    quote_version: int
    offer_id: str | None = None
    typed_amount: str | None = None
    cap_usd: Decimal | None = None
    reason: str = ""
    hours: Decimal | None = None
    seen: str | None = None


def verdict(
    policy: Policy,
    approval_plan: ApprovalPlan,
    what: DecisionInput,
    request: RequestFacts,
    decider: DeciderFacts,
    now: datetime,
) -> Verdict:
    """Judge one decision. Allowed codes: `approved`, `first_of_two`, `rejected`, `cancelled`; all others refuse.

    `amount_needed` asks the caller for the dialog; nothing else about the decision was wrong.
    """
    refusal = identity(policy, what.decision, request, decider) or _refuse_closed(what, request, now)
    if refusal is None and what.decision is Decision.APPROVE:
        return _approve(policy, approval_plan, what, request, decider)
    if refusal is None and what.decision is Decision.REJECT:
        return _reject(policy, what)
    return refusal or Verdict(True, ReplyCode.CANCELLED, "You cancelled the request.")


def is_requester(request: RequestFacts, actor: Actor) -> bool:
    """Whether `actor` made the request, under this or a linked identity."""
    return any(is_same(actor, one) for one in (request.requester, *request.linked))


def identity(policy: Policy, decision: Decision, request: RequestFacts, decider: DeciderFacts) -> Verdict | None:
    """Return why this person may not make this decision; None when they may."""
    # A program may only withdraw its own request, regardless of its key.
    program = decision is not Decision.CANCEL and decider.actor.is_program
    refusal = deny(ReplyCode.BOT, "A bot can't approve or reject a request.") if program else None
    own = is_requester(request, decider.actor)
    deed = Deed.WITHDRAW if own and decision is Decision.CANCEL else Deed.APPROVE
    if refusal := refusal or ineligible(policy, decider, deed):
        return refusal
    if decision is Decision.CANCEL and own:
        return None
    if decider.actor.kind is ActorKind.SLACK and not policy.allow_slack_decisions:
        return SLACK_OFF
    if decision is Decision.CANCEL and not is_approver(policy, decider):
        return deny(ReplyCode.NOT_YOURS, "Only the requester or an approver can cancel this request.")
    if decision is not Decision.CANCEL and own and not policy.allow_self_approval:
        if over := closed(request):
            return over
        if decision is Decision.REJECT:
            return deny(ReplyCode.REQUESTER, "You can't reject your own request. Cancel it instead.")
        return deny(
            ReplyCode.REQUESTER, f"You can't approve your own request. Ask an approver{_names(policy, request)}."
        )
    if decision is Decision.CANCEL or is_approver_of(policy, decider, request.mandate):
        return None
    return _in_place_of(policy, request, decider)


def _in_place_of(policy: Policy, request: RequestFacts, decider: DeciderFacts) -> Verdict | None:
    """Refuse who is neither an approver nor a valid delegate; nobody is a delegate for their own request."""
    delegators = eligible_delegators(policy, decider, request.mandate)
    if delegators and is_requester(request, decider.actor):
        return deny(ReplyCode.REQUESTER, "You can't approve your own request, not even as a delegate.")
    if eligible_delegators(policy, decider, request.mandate, (request.requester, *request.linked)):
        return None
    if delegators:
        return deny(
            ReplyCode.DELEGATOR_REQUESTED,
            "You are the requester's delegate, so you can't approve this. Another approver can.",
        )
    if any(not one.known for one in decider.behalf):
        sentence = "Slack did not say whether the person you stand in for is still an approver. Try again in a moment."
        return deny(ReplyCode.DELEGATOR_UNKNOWN, sentence)
    if not is_approver(policy, decider):
        return deny(ReplyCode.NOT_AN_APPROVER, f"Only approvers can do this{_names(policy, request)}.")
    group = group_of(request.mandate.tier)
    return deny(ReplyCode.OTHER_GROUP, f"Only the group {group} can do this{_names(policy, request)}.")


def _names(policy: Policy, request: RequestFacts) -> str:
    """Name the approvers of a request, as services name people, without the requester; empty when there are none."""
    asked = {name for one in (request.requester, *request.linked) for name in (one.id, one.ref)}
    found = references(name for name in mentioned_approvers(policy, request.mandate) if name not in asked)
    return f": {found}" if found else ""


def chosen_delegator(policy: Policy, request: RequestFacts, decider: DeciderFacts) -> Actor | None:
    """Return the delegator for whom somebody approves, first one without an approval; None in their own right."""
    if is_approver_of(policy, decider, request.mandate):
        return None
    found = eligible_delegators(policy, decider, request.mandate, (request.requester, *request.linked))
    return next((one for one in found if not has_approved(policy, request, one)), found[0] if found else None)


def has_approved(policy: Policy, request: RequestFacts, actor: Actor) -> bool:
    """Whether somebody's approval is there already, under any of their names or through a delegate."""
    approvers = [Actor.from_ref(ref) for ref in (*request.approvals, *request.delegators)]
    return any(is_same(one, approver) for one in (actor, *linked(policy, actor)) for approver in approvers)


_CLOSED = {
    RequestState.APPROVED: (ReplyCode.ALREADY_APPROVED, "This request was already approved"),
    RequestState.REJECTED: (ReplyCode.ALREADY_REJECTED, "This request was already rejected"),
    RequestState.CANCELLED: (ReplyCode.ALREADY_CANCELLED, "This request was already cancelled"),
    RequestState.EXPIRED: (ReplyCode.ALREADY_EXPIRED, "This request has expired"),
    RequestState.UNAVAILABLE: (ReplyCode.ALREADY_UNAVAILABLE, "This request found no offer"),
}


#: The answer where Slack only notifies.
SLACK_OFF = deny(ReplyCode.SLACK_OFF, "You can't approve or reject in Slack here. Use the command line or REST.")


def _refuse_closed(what: DecisionInput, request: RequestFacts, now: datetime) -> Verdict | None:
    """Refuse a decision on a closed, unquoted or expired request; cancelling only needs an open one."""
    if over := closed(request):
        return over
    if what.decision is Decision.CANCEL:
        return None
    if request.state is RequestState.WAITING and what.decision is Decision.REJECT:
        return None
    if request.state is not RequestState.PENDING:
        return still_quoting(request.looking_at)
    if now >= request.expires_at:
        return deny(ReplyCode.ALREADY_EXPIRED, "This request has expired. Make a new one for fresh offers.")
    # A rejection is about the request itself, so it holds whatever the offers have become: a denial wins.
    if what.decision is Decision.APPROVE and what.quote_version != request.quote_version:
        return deny(ReplyCode.QUOTE_MOVED, "The offers of this request have changed. Choose from the new ones.")
    return None


def closed(request: RequestFacts) -> Verdict | None:
    """Return how a request ended already; None while it is open."""
    if request.state not in _CLOSED:
        return None
    by = f" by {request.decided_by.removeprefix('operator:')}" if request.decided_by else ""
    code, sentence = _CLOSED[request.state]
    return deny(code, f"{sentence}{by}.")


def _approve(
    policy: Policy, needed: ApprovalPlan, what: DecisionInput, request: RequestFacts, decider: DeciderFacts
) -> Verdict:
    place = chosen_delegator(policy, request, decider)
    if any(has_approved(policy, request, one) for one in (decider.actor, *([place] if place else []))):
        return deny(ReplyCode.ALREADY_VOTED, "You already approved this. It needs another approver.")
    if needed.needs_override:
        return deny(ReplyCode.OVERRIDE_FIRST, f"The {hour_limit(policy.max_hours)} override must be approved first.")
    terms = request.terms
    if terms is not None and what.seen != terms.digest and (what.seen is not None or terms.is_changed):
        return deny(
            ReplyCode.CHANGED_SINCE, "Another approver changed this after you opened it. Read it again, then approve."
        )
    if request.chosen_offer_id not in (None, what.offer_id):
        sentence = f"The first approver chose {request.chosen_offer_id}. Approve that option, or reject the request."
        return deny(ReplyCode.OTHER_OFFER, sentence)
    refusal = may_shorten(what.hours, request.most_hours or Decimal(0), can=request.most_hours is not None)
    refusal = refusal or _cap(policy, what.cap_usd, request, decider) or _used_up(what.cap_usd, request)
    # A limit that was set before still holds; the next approver sees it in the dialog and may set another one.
    if refusal is None and (needed.confirm_amount or request.limit_binds):
        refusal = confirmed(what.typed_amount, request.in_all_usd)
    if refusal is not None:
        return refusal
    people = {person_key(policy, Actor.from_ref(ref)) for ref in request.approvals}
    left = needed.required - len(people) - 1
    if left > 0:
        more = f"It needs {plural(left, 'more approval')}."
        return Verdict(True, ReplyCode.FIRST_OF_TWO, f"You approved the request. {more}")
    return Verdict(True, ReplyCode.APPROVED, "You approved the request.")


def _cap(policy: Policy, cap_usd: Decimal | None, request: RequestFacts, decider: DeciderFacts) -> Verdict | None:
    if cap_usd is None:
        return None
    if not cap_usd.is_finite() or cap_usd <= 0:
        return deny(ReplyCode.BAD_CAP, "A limit must be an amount above zero, such as $50.")
    if request.cap_usd is not None and cap_usd > request.cap_usd:
        return deny(
            ReplyCode.CAP_RAISED, f"The limit is {usd(request.cap_usd)} already. You can lower it, not raise it."
        )
    most_usd = request.worst_usd + request.spent_usd
    if cap_usd > most_usd:
        sentence = f"The limit can't be above {usd(most_usd)}: this offer never costs more than that."
        return deny(ReplyCode.CAP_RAISED, sentence)
    held_usd = request.limit.usd if request.limit is not None else most_usd
    lifted = change_cap(cap_usd, held_usd, set_by_approver=True, by_approver=is_approver(policy, decider))
    return None if lifted.allowed else lifted


def _used_up(cap_usd: Decimal | None, request: RequestFacts) -> Verdict | None:
    """Refuse when nothing is left of a limit for all attempts. Approvers can lift their own limit here."""
    limit_usd = cap_usd if cap_usd is not None or request.limit is None else request.limit.usd
    worst, asked, spent = request.worst_usd, request.asked_usd, request.spent_usd
    if worst == 0 or total_cap(worst, asked_usd=asked, approver_usd=limit_usd, spent_usd=spent) > 0:
        return None
    if asked is not None and asked <= spent:
        sentence = f"Earlier attempts spent {usd(spent)} of the requester's limit of {usd(asked)}. Reject the request."
        return deny(ReplyCode.BUDGET_SPENT, sentence)
    sentence = (
        f"Earlier attempts spent {usd(spent)} of the limit of {usd(limit_usd or spent)}. "
        "Set a higher limit, or reject the request."
    )
    return deny(ReplyCode.LIMIT_SPENT, sentence)


def confirmed(typed: str | None, expected_usd: Decimal) -> Verdict | None:
    """Refuse unless this amount was typed, and say what to type (`amount_needed`, `amount_mismatch`)."""
    shown, whole = money.cents(expected_usd), money.dollars(expected_usd)
    type_this = f"type {shown} or {whole}"
    if typed is None or not typed.strip():
        return deny(ReplyCode.AMOUNT_NEEDED, f"The expected total is {usd(expected_usd)}. To confirm it, {type_this}.")
    amount = read_amount(typed)
    if amount not in (shown, whole):
        said = "something that is no amount" if amount is None else usd(amount)
        sentence = f"You typed {said}, but the expected total is {usd(expected_usd)}. To confirm it, {type_this}."
        return deny(ReplyCode.AMOUNT_MISMATCH, sentence)
    return None


def _reject(policy: Policy, what: DecisionInput) -> Verdict:
    reason = what.reason.strip()
    if not reason:
        return deny(ReplyCode.REASON_NEEDED, "Say why you reject it, so that the requester knows what to change.")
    if wrong := job_bounds.reason(reason, policy):
        return deny(*wrong)
    return Verdict(True, ReplyCode.REJECTED, "You rejected the request.")
