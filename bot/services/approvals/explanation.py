"""Explain why a request needs approval: its rule, its approvers, its escalation, and what was waived."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from bot.rules.approvals.approvers import (
    groups,
    is_same,
    is_slack_group,
    linked,
    members,
    mentioned_approvers,
    named,
    references,
)
from bot.rules.approvals.auto_approval import AUTO_APPROVAL_PREFIX
from bot.rules.approvals.decision import SLACK_OFF
from bot.rules.jobs.job_text import what_is_requested
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, chain, group_of, next_step
from bot.rules.values.phrases import plural, usd
from bot.rules.values.state_text import state_words
from bot.services.grants import approvers
from bot.services.market.codec import most_line, parts_line
from bot.services.runtime.context import Context
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RENTS, RequestKind
from ledger.kernel.states import RequestState
from ledger.queries.decisions import opened_at
from ledger.queries.journal import reasons_of
from ledger.queries.views import RequestView, request_view

#: Journal events of decisions that the policy's usual rules did not make.
WAIVERS = (EventKind.BUDGET_OVERRIDDEN, EventKind.REQUEST_BREAK_GLASS)


@dataclass(frozen=True, slots=True)
class Why:
    """Why one request needed approval. `approvers` are notified, `not_notified` may approve it as well.

    `waived` are the rules that were waived for it, and `sentences` the whole explanation for people.
    """

    request_id: str
    state: RequestState
    rule: str
    tier: str
    group: str
    required: int
    given: tuple[str, ...]
    approvers: tuple[str, ...]
    not_notified: tuple[str, ...]
    waived: tuple[str, ...]
    sentences: tuple[str, ...]


async def why(ctx: Context, request_id: str) -> Why:
    """Explain one request. LookupError when there is none."""
    now, policy = ctx.clock.now(), ctx.policy
    async with ctx.db.read() as tx:
        view = await request_view(tx, request_id)
        found = await approvers.approver_group(tx, policy, view.request, now)
        since = (await opened_at(tx, [view.request]))[request_id]
        journal = await reasons_of(tx, request_id, WAIVERS)
    request = view.request
    given = tuple(
        one.approver
        for one in view.approvals
        if one.decision == "approve" and one.quote_version == request.quote_version
    )
    waived = (*_waived(policy, view), *journal)
    return Why(
        request_id=request.id,
        state=request.state,
        rule=request.rule,
        tier=found.tier.name if found.tier else "",
        group=group_of(found.tier),
        required=request.required_approvals,
        given=given,
        approvers=mentioned_approvers(policy, found),
        not_notified=policy.may_approve_not_pinged,
        waived=waived,
        sentences=tuple(_sentences(policy, view, found, given, waived, since, now)),
    )


def _waived(policy: Policy, view: RequestView) -> list[str]:
    found = []
    if (view.request.decided_by or "").startswith(AUTO_APPROVAL_PREFIX):
        found.append("The policy's auto-approval covered it, so no person approved it.")
    if policy.allow_self_approval:
        found.append("The policy lets approvers approve their own requests.")
    return found


#: A state in which nobody decides any more, as a sentence begins that may name who decided.
_CLOSED = {
    RequestState.APPROVED: "It was approved",
    RequestState.REJECTED: "It was rejected",
    RequestState.CANCELLED: "It was cancelled",
    RequestState.EXPIRED: "It expired",
    RequestState.UNAVAILABLE: "It found no offer",
}


def _amounts(view: RequestView) -> list[str]:
    """Say what the recommended or chosen option costs, and what the most that it may cost is made of."""
    if view.request.kind not in RENTS or not view.options:
        return []
    chosen = view.request.chosen_option_id
    option = next((one for one in view.options if one.id == chosen), view.options[0])
    parts, most = parts_line(option), most_line(option)
    expected = f"#{option.rank} is expected to cost {usd(option.expected_usd)}{f' ({parts})' if parts else ''}"
    return [f"{expected}, and never more than {usd(option.worst_usd)}{f' ({most})' if most else ''}."]


def _without(policy: Policy, names: Iterable[str], others: Collection[str]) -> list[str]:
    """Return the names whose person is none of the others, by whatever name."""
    listed = [named(one) for one in others if not is_slack_group(one)]
    people = ((name, [named(name), *linked(policy, named(name))]) for name in names)
    return [name for name, same in people if not any(is_same(one, other) for one in same for other in listed)]


def _sentences(
    policy: Policy,
    view: RequestView,
    found: ApproverGroup,
    given: tuple[str, ...],
    waived: tuple[str, ...],
    since: datetime,
    now: datetime,
) -> list[str]:
    request = view.request
    sentences = [request.rule or "It has no offers yet, so no rule applies to it.", *_amounts(view)]
    if request.kind is RequestKind.OVERRIDE_12H:
        how = ", approved with it" if request.state is RequestState.PENDING else ""
        sentences.insert(
            0, f"{what_is_requested(request.kind, job_of(request.job), request.parent_id, policy.max_hours)}{how}."
        )
    if request.state is not RequestState.PENDING:
        by = f" by {references([request.decided_by])}" if request.decided_by else ""
        return [*sentences, f"{_CLOSED.get(request.state, f'It is {state_words(request.state)}')}{by}.", *waived]
    below = policy.auto_approve_below_usd
    sentences.append(
        "The policy lets a person approve every spend."
        if below is None
        else f"The policy approves by itself only what can't cost {usd(below)} or more."
    )
    pinged = mentioned_approvers(policy, found)
    names = references(pinged) or "nobody, because the policy names no approver"
    by = f" ({', '.join(given)})" if given else ""
    sentences.append(
        f"It has {len(given)} of {plural(request.required_approvals, 'approval')}{by}. Approvers: {names}."
    )
    if unpinged := _without(policy, policy.may_approve_not_pinged, pinged):
        sentences.append(f"These approvers get no message: {references(unpinged)}.")
    sentences += [f"{group} can approve too, because it has waited so long." for group in groups(policy, found)[1:]]
    further = chain(found.tier, policy.escalate_to)
    onwards = next_step(len(further), since, now, policy.escalate_after_s)
    if onwards is not None and onwards < request.expires_at:
        group = further[found.steps]
        sentences.append(
            f"From {onwards:%Y-%m-%d %H:%M} UTC {group} can approve too: {references(members(policy, group))}."
        )
    if not policy.allow_slack_decisions:
        sentences.append(SLACK_OFF.sentence)
    return [*sentences, f"It expires {request.expires_at:%Y-%m-%d %H:%M} UTC.", *waived]
