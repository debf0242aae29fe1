"""Judge whether an orphan may be adopted, by the approvers, plan and budgets that every request has.

The orphan runs already and costs, so a refusal says how to terminate it instead. Where two approvals are needed, the
first one is an entry in the journal of the orphan: there is no request before it is adopted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.authority import ApprovalPlan, Authority, plan
from bot.rules.approvals.decision import (
    DeciderFacts,
    Decision,
    DecisionInput,
    RequestFacts,
    linked,
    verdict,
)
from bot.rules.jobs.job import JobRequest
from bot.rules.policy import volume_checks
from bot.rules.policy.policy import Policy
from bot.rules.pricing.spend_limits import price_cap
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from bot.services.budgets import enforcement
from bot.services.grants import approvers
from bot.services.market.codec import offer_to_json
from bot.services.runtime.context import Context
from ledger.core import Tx, record
from ledger.kernel import money
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import RequestState
from ledger.kernel.volume_name import volume_of
from ledger.models import Orphan, Request
from ledger.queries.decisions import people_behind
from ledger.queries.journal import latest_events
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint

#: More approvals than a policy can require.
MOST = 20
OWN = "It would be your session, so another approver must adopt it."


@dataclass(frozen=True, slots=True)
class Adopt:
    """An approver's command to adopt a quarantined orphan for `hours`; `owner` is whose session it becomes.

    `typed_amount` is the expected total in dollars as they typed it, where the policy requires that.
    """

    orphan: str
    hours: Decimal
    decider: DeciderFacts
    owner: Actor
    reason: str
    channel: str
    #: Names the call; a repeated call adopts nothing. Empty where calls are never repeated.
    key: str = ""
    typed_amount: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one approver's command. `voters` are all whose approvals count, this one last."""

    verdict: Verdict
    plan: ApprovalPlan
    voters: tuple[str, ...]
    price_cap_usd_h: Decimal
    total_cap_usd: Decimal
    spend: enforcement.PlannedSpend
    room: enforcement.Room


def job_of(command: Adopt, offer: Offer) -> JobRequest:
    """Return the job of an adopted orphan, as somebody would have requested it."""
    gpu = GpuConstraint((offer.gpu,), offer.gpu_count, offer.gpu_count)
    return JobRequest(gpu, command.hours, candidates=(offer.cloud,), reason=command.reason)


async def judge(ctx: Context, tx: Tx, command: Adopt, orphan: Orphan, offer: Offer, now: datetime) -> Judged:
    """Judge one approval in the transaction that acts on it; the budgets stay locked until it ends."""
    policy = ctx.policy
    rate_usd_h = (offer.price_usd_h or Decimal(0)) + offer.storage_usd_h
    cap_usd_h = price_cap(rate_usd_h, policy)
    expected_usd, worst_usd = money.rate(rate_usd_h * command.hours), money.rate(cap_usd_h * command.hours)
    job = job_of(command, offer)
    if volume_of(offer.gpu):
        grows = ctx.providers[offer.cloud].capabilities.volume_grows
        worst_usd += volume_checks.notices_usd(rate_usd_h, policy, grows=grows)
    mandate = await approvers.fresh(tx, policy, command.owner.ref, job, [(worst_usd, offer_to_json(offer))])
    needed = plan(policy, Authority(worst_usd, expected_usd, command.hours), mandate=mandate)
    voters = await _voters(tx, command, worst_usd, now - timedelta(seconds=policy.request_ttl_s))
    facts = RequestFacts(
        state=RequestState.PENDING,
        requester=command.owner,
        linked=await _other_names(tx, policy, command.owner),
        quote_version=0,
        expires_at=now + timedelta(seconds=policy.request_ttl_s),
        expected_usd=expected_usd,
        worst_usd=worst_usd,
        approvals=voters,
        mandate=mandate,
    )
    said = DecisionInput(Decision.APPROVE, 0, typed_amount=command.typed_amount, reason=command.reason)
    judged = verdict(policy, needed, said, facts, command.decider, now)
    spend = enforcement.PlannedSpend(command.owner.ref, policy.project, worst_usd, cap_usd_h, expected_usd)
    room = enforcement.Room(judged)
    if judged.code == ReplyCode.APPROVED:
        room = await enforcement.check_budgets(ctx, tx, spend, now, command.decider, command.typed_amount)
        judged = judged if room.verdict.allowed else room.verdict
    if not judged.allowed:
        judged = deny(judged.code, f"{OWN if judged.code == ReplyCode.REQUESTER else judged.sentence}{_end(orphan)}")
    return Judged(judged, needed, (*voters, command.decider.actor.ref), cap_usd_h, worst_usd, spend, room)


def back(tx: Tx, command: Adopt, orphan: Orphan, judged: Judged, now: datetime) -> None:
    """Record one of several required approvals."""
    data = {"hours": str(command.hours), "owner": command.owner.ref, "worst_usd": str(judged.total_cap_usd)}
    actor = command.decider.actor
    record(tx, now, actor, orphan.id, EventKind.ORPHAN_BACKED, reason=command.reason, data=data)


async def reserved(ctx: Context, tx: Tx, request: Request, judged: Judged, actor: Actor, now: datetime) -> None:
    """Notify the budget owners of an adoption, and record a budget that was exceeded on purpose."""
    await enforcement.reserved(ctx, tx, judged.spend, judged.room, now)
    if judged.room.verdict.code == ReplyCode.OVERRIDDEN:
        enforcement.overridden(tx, request, actor, judged.room, now)


def _end(orphan: Orphan) -> str:
    return f" It costs money until then. To end it: {cli_command(f'orphans condemn {orphan.id}')}."


async def _voters(tx: Tx, command: Adopt, worst_usd: Decimal, since: datetime) -> tuple[str, ...]:
    """Return who approved the same before, for no less than it costs now."""
    said = await latest_events(tx, command.orphan, EventKind.ORPHAN_BACKED, MOST)
    same = [
        one.actor
        for one in said
        if one.at >= since
        and (one.data["hours"], one.data["owner"]) == (str(command.hours), command.owner.ref)
        and Decimal(one.data["worst_usd"]) >= worst_usd
    ]
    return tuple(dict.fromkeys(reversed(same)))


async def _other_names(tx: Tx, policy: Policy, owner: Actor) -> tuple[Actor, ...]:
    """Return the owner's other names, and the people behind an owning program: none of them may approve it."""
    behind = [Actor.from_ref(ref) for ref in (await people_behind(tx, {owner.ref})).values()]
    return (*linked(policy, owner), *(name for one in behind for name in (one, *linked(policy, one))))
