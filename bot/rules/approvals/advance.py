"""Judge approvals in advance: who may approve the limits of a waiting request, and which offer they cover."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.approvals.decision import (
    Decision,
    RequestFacts,
    chosen_delegator,
    closed,
    confirmed,
    has_approved,
    identity,
)
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict, brief, deny, plural, rate, rates, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.states import RequestState
from providers.gpus.constraint import GpuConstraint

NO_LIMIT = deny(
    ReplyCode.NO_LIMIT,
    "This waits without a price limit, so it can't be approved in advance. Approve it when it shows an offer.",
)


@dataclass(frozen=True, slots=True)
class Cover:
    """Hold what an approval in advance covers. `tier` is the name of the policy's tier at that moment."""

    gpu: GpuConstraint
    price_usd_h: Decimal
    total_usd: Decimal
    hours: Decimal
    until: datetime
    tier: str = ""


@dataclass(frozen=True, slots=True)
class MatchedSpend:
    """Hold what an approval of the offer that was found would cover now."""

    gpu: str
    gpu_count: int
    price_usd_h: Decimal
    total_usd: Decimal
    expected_usd: Decimal
    hours: Decimal
    tier: str
    at: datetime


def outside(cover: Cover, spend: MatchedSpend) -> str:
    """Return why an offer is outside an approval in advance; empty when it is inside."""
    gpu = cover.gpu
    if gpu.names and spend.gpu not in gpu.names:
        return f"{spend.gpu} is not among the GPUs that were approved in advance."
    if not gpu.count_min <= spend.gpu_count <= gpu.count_max:
        return f"{plural(spend.gpu_count, 'GPU')} is not the number that was approved in advance."
    if spend.price_usd_h > cover.price_usd_h:
        now, approved = rates(spend.price_usd_h, cover.price_usd_h)
        return f"The price is {now}, above the {approved} that was approved in advance."
    if spend.total_usd > cover.total_usd:
        total = usd(cover.total_usd)
        return f"It may cost {usd(spend.total_usd)}, above the {total} that was approved in advance."
    if spend.expected_usd > cover.total_usd:
        total = usd(cover.total_usd)
        return f"It is expected to cost {usd(spend.expected_usd)}, above the {total} that was approved in advance."
    if spend.hours > cover.hours:
        return f"It is for {brief(spend.hours)}, and {brief(cover.hours)} were approved in advance."
    if spend.at >= cover.until:
        return "The approval in advance has expired."
    if spend.tier != cover.tier:
        return "The policy's tier for it has changed since it was approved in advance."
    return ""


def may_approve(
    policy: Policy,
    needed: ApprovalPlan,
    cover: Cover | None,
    request: RequestFacts,
    decider: DeciderFacts,
    typed: str | None,
    now: datetime,
) -> Verdict:
    """Judge an approval in advance. `request` has the approvers in advance as its approvals, and the total as amounts.

    Allowed code: `in_advance`. The total is typed above the policy's amount, because no offer names a lower one. The
    total of `cover` may be lower than the one of the request, and never higher.
    """
    refusal = identity(policy, Decision.APPROVE, request, decider) or closed(request)
    if refusal is None and request.state is not RequestState.WAITING:
        refusal = deny(ReplyCode.NOT_WAITING, "This request no longer waits for an offer.")
    if refusal is None and now >= request.expires_at:
        refusal = deny(ReplyCode.ALREADY_EXPIRED, "This request has expired. Make a new one.")
    if refusal is not None:
        return refusal
    if cover is None:
        return NO_LIMIT
    if not 0 < cover.total_usd <= request.worst_usd:
        return deny(ReplyCode.CAP_RAISED, f"The limit must be above zero and at most {usd(request.worst_usd)}.")
    place = chosen_delegator(policy, request, decider)
    if any(has_approved(policy, request, one) for one in (decider.actor, *([place] if place else []))):
        return deny(ReplyCode.ALREADY_VOTED, "You already approved this in advance.")
    if needed.confirm_amount and (wrong := confirmed(typed, request.in_all_usd)):
        return wrong
    left = needed.required - len(request.approvals) - 1
    more = f" It needs {plural(left, 'more approval')}." if left > 0 else ""
    said = f"You approved it in advance: at most {rate(cover.price_usd_h)} and {usd(cover.total_usd)} in all.{more}"
    return Verdict(True, ReplyCode.IN_ADVANCE, said)
