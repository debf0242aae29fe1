"""Return the approver group of a request: its policy tier, and the groups it was escalated to since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.approvals.approvers import ANYBODY, linked, with_steps
from bot.rules.policy import tiers
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup, Weighed
from ledger.core import Tx
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.job import JobRequest
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Option, Request
from ledger.queries.decisions import opened_at, parents_of, people_behind, shown_options
from ledger.queries.views import RequestView

#: The worst case in dollars and the offer of each option of a request.
Shown = Sequence[tuple[Decimal, Mapping[str, Any]]]


async def approver_group(tx: Tx, policy: Policy, request: Request, now: datetime) -> ApproverGroup:
    """Return the approver group of one request now."""
    return (await approver_groups(tx, policy, [request], now))[request.id]


async def approver_groups(
    tx: Tx, policy: Policy, requests: Sequence[Request], now: datetime
) -> Mapping[str, ApproverGroup]:
    """Return the approver group of each request now, in a fixed number of queries.

    There are no queries where the policy has one group only.
    """
    if not requests or not (policy.approval_tiers or policy.escalate_to):
        return {one.id: ANYBODY for one in requests}
    since = await opened_at(tx, requests)
    parents = await parents_of(tx, requests)
    # An override buys nothing of its own, so the tier of its parent request counts.
    about = {one.id: (one.parent_id or one.id) if one.kind is RequestKind.OVERRIDE_12H else one.id for one in requests}
    options = await shown_options(tx, set(about.values()))
    askers = {one.id: parents.get(one.parent_id or "", one).requester for one in requests}
    programs = {ref for ref in askers.values() if Actor.from_ref(ref).is_program}
    behind = await people_behind(tx, programs)
    found = {}
    for one in requests:
        asker = behind.get(askers[one.id], askers[one.id])
        offers = shown(options.get(about[one.id], ()))
        if one.state is RequestState.WAITING:
            offers = shown_in_advance(one.job, one.job.budget_cap_usd)
        fixed = _fixed(policy, one.job, offers, asker)
        found[one.id] = with_steps(policy, fixed, since[one.id], now)
    return found


async def fresh(tx: Tx, policy: Policy, asker: str, job: JobRequest, shown: Shown) -> ApproverGroup:
    """Return the approver group of options that are about to be shown, given each one's worst case and offer."""
    if not policy.approval_tiers:
        return ANYBODY
    behind = await people_behind(tx, {asker})
    return _fixed(policy, job, shown, behind.get(asker, asker))


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


def shown(options: Sequence[Option]) -> Shown:
    """Return the worst case and the offer of each option."""
    return [(one.worst_usd, one.offer) for one in options]


def shown_in_advance(job: JobRequest, total_usd: Decimal | None) -> Shown:
    """Return what the limits of a waiting request let it show: the most that they allow, for each of its GPUs."""
    about: dict[str, Any] = {"gpu_count": job.gpu.count_max, "nodes": job.nodes}
    return [(total_usd or Decimal(0), {**about, "gpu": name}) for name in job.gpu.names or ("",)]


def _fixed(policy: Policy, job: JobRequest, options: Shown, asker: str) -> ApproverGroup:
    """Return the tier of a request: its most expensive option counts, whichever is chosen in the end."""
    spend = Weighed(
        max((worst_usd for worst_usd, _ in options), default=Decimal(0)),
        job.already_hours + job.hours,
        max((_gpus(offer) for _, offer in options), default=job.gpu.count_min * job.nodes),
        frozenset(str(offer.get("gpu", "")) for _, offer in options) or frozenset(job.gpu.names),
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
