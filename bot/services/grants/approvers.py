"""Return the approver group of a request: its policy tier, and the groups it was escalated to since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.approvals.approvers import ANYBODY, linked, with_steps
from bot.rules.approvals.authority import NOTHING, ApprovalPlan, Authority, EarlierAuthority, plan
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.policy import tiers
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, Weighed
from bot.services.grants import authority
from ledger.core import Tx
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Option, Request
from ledger.queries.decisions import opened_at, parents_of, people_behind, shown_options
from ledger.queries.views import RequestView

#: The worst case in dollars, and the offer, of what may be bought.
Offers = Sequence[tuple[Decimal, Mapping[str, Any]]]


async def approver_group(
    tx: Tx, policy: Policy, request: Request, now: datetime, option: Option | None = None
) -> ApproverGroup:
    """Return the approver group of one request now, or the one of an offer of it that somebody approves."""
    return (await approver_groups(tx, policy, [request], now, {request.id: option} if option else {}))[request.id]


async def approver_groups(
    tx: Tx, policy: Policy, requests: Sequence[Request], now: datetime, picked: Mapping[str, Option] | None = None
) -> Mapping[str, ApproverGroup]:
    """Return the approver group of each request now, in a fixed number of queries.

    The tier is the one of the offer that is `picked`, that the first approver chose, or that is shown first. There are
    no queries where the policy has one group only.
    """
    if not requests or not (policy.approval_tiers or policy.escalate_to):
        return {one.id: ANYBODY for one in requests}
    since = await opened_at(tx, requests)
    parents = await parents_of(tx, requests)
    # An override buys nothing of its own, so the tier of its parent request counts.
    about = {one.id: (one.parent_id or one.id) if one.kind is RequestKind.OVERRIDE_12H else one.id for one in requests}
    options = await shown_options(tx, set(about.values()))
    earlier = await authority.earlier_of(tx, requests, now)
    askers = {one.id: parents.get(one.parent_id or "", one).requester for one in requests}
    programs = {ref for ref in askers.values() if Actor.from_ref(ref).is_program}
    behind = await people_behind(tx, programs)
    found = {}
    for one in requests:
        asker = behind.get(askers[one.id], askers[one.id])
        option = (picked or {}).get(one.id) or _option_of(one, options.get(about[one.id], ()))
        job = job_of(one.job)
        offers: Offers = [shown(option)] if option is not None else []
        if one.state is RequestState.WAITING:
            offers = shown_in_advance(job, job.budget_cap_usd)
        before = earlier[one.id].before(is_figure=authority.is_figure(one))
        fixed = _fixed(policy, job, offers, asker, before)
        found[one.id] = with_steps(policy, fixed, since[one.id], now)
    return found


def _option_of(request: Request, options: Sequence[Option]) -> Option | None:
    """Return the offer that the first approver chose, or the one that is shown first."""
    chosen = (one for one in options if one.id == request.chosen_option_id)
    return next(chosen, options[0] if options else None)


async def fresh(
    tx: Tx, policy: Policy, asker: str, job: JobRequest, offers: Offers, earlier: Authority = NOTHING
) -> ApproverGroup:
    """Return the approver group of a spend that is about to be shown, whichever of these offers it is in the end.

    `earlier` is what was approved before for the same run.
    """
    if not policy.approval_tiers:
        return ANYBODY
    behind = await people_behind(tx, {asker})
    return _fixed(policy, job, offers, behind.get(asker, asker), earlier)


async def planned(
    tx: Tx,
    policy: Policy,
    owner: str,
    job: JobRequest,
    more: Authority,
    offer: Mapping[str, Any],
    earlier: EarlierAuthority,
    *,
    is_figure: bool = False,
) -> tuple[ApprovalPlan, ApproverGroup]:
    """Plan the approval, by people, of what a session of `owner` may cost, and return its group too."""
    spend, before = earlier.spend(more, is_figure=is_figure), earlier.before(is_figure=is_figure)
    mandate = await fresh(tx, policy, owner, job, [(spend.worst_usd, offer)], before)
    by_people = replace(policy, auto_approve_below_usd=None)
    return plan(by_people, spend, before, RequestState.APPROVED, mandate), mandate


async def fresh_of_each(
    tx: Tx, policy: Policy, asker: str, job: JobRequest, options: Sequence[Option], earlier: Authority
) -> list[ApproverGroup]:
    """Return the approver group of each of these options, one of which is approved in the end."""
    if not policy.approval_tiers:
        return [ANYBODY] * len(options)
    behind = await people_behind(tx, {asker})
    return [_fixed(policy, job, [shown(one)], behind.get(asker, asker), earlier) for one in options]


async def barred(tx: Tx, policy: Policy, view: RequestView) -> list[Actor]:
    """Return the people who cannot approve a request because it is theirs, or about their session.

    Nobody where the policy lets people approve their own requests and the time is within the limit.
    """
    request, refs = view.request, [view.request.requester]
    above = view.override is not None or request.kind is RequestKind.OVERRIDE_12H
    if policy.allow_self_approval and not above:
        return []
    if view.parent is not None:
        refs.append(view.parent.requester)
    behind = await people_behind(tx, {ref for ref in refs if Actor.from_ref(ref).is_program})
    return [Actor.from_ref(ref) for ref in dict.fromkeys((*refs, *behind.values()))]


def shown(option: Option) -> tuple[Decimal, Mapping[str, Any]]:
    """Return the worst case of an option, and its offer."""
    return option.worst_usd, option.offer


def shown_in_advance(job: JobRequest, total_usd: Decimal | None) -> Offers:
    """Return what the limits of a waiting request let it show: the most that they allow, for each of its GPUs."""
    about: dict[str, Any] = {"gpu_count": job.gpu.count_max, "nodes": job.nodes}
    return [(total_usd or Decimal(0), {**about, "gpu": name}) for name in job.gpu.names or ("",)]


def _fixed(policy: Policy, job: JobRequest, offers: Offers, asker: str, earlier: Authority) -> ApproverGroup:
    """Return the tier of a spend, by what its run may cost in all with the most expensive of these offers."""
    spend = Weighed(
        max((worst_usd for worst_usd, _ in offers), default=Decimal(0)) + earlier.worst_usd,
        job.already_hours + job.hours + earlier.hours,
        max((_gpus(offer) for _, offer in offers), default=job.gpu.count_min * job.nodes),
        frozenset(str(offer.get("gpu", "")) for _, offer in offers) or frozenset(job.gpu.names),
        teams_of(policy, Actor.from_ref(asker)),
    )
    tier = tiers.tier_of(policy.approval_tiers, spend)
    return ApproverGroup(tier, tiers.because(tier, spend) if tier else "")


def _gpus(offer: Mapping[str, Any]) -> int:
    """Return the GPUs of an offer, on all machines of a set."""
    return int(offer.get("gpu_count", 0)) * int(offer.get("nodes", 1))


def teams_of(policy: Policy, person: Actor) -> frozenset[str]:
    """Return the policy's teams that a person is in, under any of their names."""
    people = (person, *linked(policy, person))
    names = {one.ref for one in people} | {one.id for one in people if one.kind is ActorKind.SLACK}
    return frozenset(team for team, members in policy.teams.items() if names & set(members))
