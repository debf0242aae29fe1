"""Work out the terms of one decision: the facts of its request, its hours, its amounts, and what it would cover."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from bot.rules.approvals.authority import Authority, EarlierAuthority
from bot.rules.approvals.decision import RequestFacts, linked
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.pricing.spend_limits import SetLimit, limit_in_force, price_cap, total_cap
from bot.services.budgets import enforcement
from bot.services.grants import amendments, authority
from bot.services.market.codec import hold_hours
from bot.services.runtime.commands import Decide
from ledger.kernel.actor import Actor
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.decisions import DecisionSubject


def total_hours(ask: DecisionSubject, command: Decide, used_h: Decimal) -> Decimal:
    """Return all hours that a run would have: earlier ones, the approved ones, and a checkpoint hold."""
    time_h = amendments.time_of(ask.request, ask.votes, command.hours)
    job = job_of(ask.request.job)
    return job.counted(job.already_hours + time_h + used_h + (hold_hours(ask.option) if ask.option else 0))


def spend_on(ask: DecisionSubject, command: Decide, earlier: EarlierAuthority) -> tuple[Authority, Authority]:
    """Return what a decision spends, and what was approved before for the same run."""
    expected_usd, worst_usd = amounts_of(ask, command)
    is_figure = authority.is_figure(ask.request)
    before = earlier.before(is_figure=is_figure)
    before = replace(before, hours=job_of(ask.request.job).counted(before.hours))
    more = Authority(worst_usd, expected_usd, total_hours(ask, command, Decimal(0)))
    return earlier.spend(more, is_figure=is_figure), before


def request_facts(policy: Policy, ask: DecisionSubject, command: Decide, mandate: ApproverGroup) -> RequestFacts:
    """Return the facts of the request now, with the amounts for the time that would be approved."""
    request = ask.request
    requester, job = Actor.from_ref(request.requester), job_of(request.job)
    expected_usd, worst_usd = amounts_of(ask, command)
    return RequestFacts(
        state=request.state,
        requester=requester,
        linked=_other_names(policy, requester, ask),
        quote_version=request.quote_version,
        expires_at=request.expires_at,
        expected_usd=expected_usd,
        worst_usd=worst_usd,
        approvals=tuple(vote.approver for vote in ask.votes),
        chosen_offer_id=ask.chosen.offer_id if ask.chosen else None,
        cap_usd=_left_by_the_first(ask),
        limit=limit_of(ask),
        asked_usd=job.budget_cap_usd,
        spent_usd=ask.spent_usd,
        decided_by=request.decided_by or "",
        mandate=mandate,
        delegators=tuple(vote.on_behalf_of for vote in ask.votes if vote.on_behalf_of),
        terms=amendments.amended_terms(request, ask.votes) if request.state is RequestState.PENDING else None,
        most_hours=amendments.most_hours(request, ask.votes) if request.kind in amendments.CHANGEABLE else None,
        looking_at=looking_at(request),
    )


def looking_at(request: Request) -> tuple[str, ...]:
    """Name the clouds whose offers are still being read for a request; none once its quote is final."""
    return tuple((request.looking or {}).get("clouds", ())) if request.state is RequestState.QUOTING else ()


def amounts_of(ask: DecisionSubject, command: Decide) -> tuple[Decimal, Decimal]:
    """Return `(expected, worst)` dollars of the chosen option, for the time that would be approved."""
    if ask.option is None:
        return Decimal(0), Decimal(0)
    return amendments.amounts(ask.request, ask.option, amendments.time_of(ask.request, ask.votes, command.hours))


def _other_names(policy: Policy, requester: Actor, ask: DecisionSubject) -> tuple[Actor, ...]:
    """Return the requester's other names, and the people behind the request: none of them may approve it.

    The owner of a program cannot approve its requests. The owner of a session cannot approve its extensions, also
    when another person requested them.
    """
    refs = filter(None, (ask.owner, ask.session.owner if ask.session else "", ask.behind_session))
    people = [Actor.from_ref(ref) for ref in refs]
    return (*linked(policy, requester), *(name for one in people for name in (one, *linked(policy, one))))


def _left_by_the_first(ask: DecisionSubject) -> Decimal | None:
    """Return the total for all attempts that the first of two approvers covered."""
    covered = [vote.total_cap_usd for vote in ask.votes if vote.total_cap_usd is not None]
    return min(covered) + ask.spent_usd if covered else None


def limit_of(ask: DecisionSubject) -> SetLimit | None:
    return limit_in_force(
        SetLimit(vote.quote_version, vote.limit_usd, vote.approver) for vote in ask.limits if vote.limit_usd is not None
    )


def spend_of(
    policy: Policy, ask: DecisionSubject, command: Decide, in_all_usd: Decimal
) -> enforcement.PlannedSpend | None:
    """Return what an approval takes from the budgets; None for one that buys nothing.

    `in_all_usd` is what the whole run is expected to cost: the amount that somebody types to exceed a budget.
    """
    cover = cover_of(policy, ask, command)
    owner = ask.session.owner if ask.session else ask.request.requester
    if cover is None or ask.option is None:
        return None
    return enforcement.spend_of(policy, ask.request, owner, cover, in_all_usd)


def cover_of(policy: Policy, ask: DecisionSubject, command: Decide) -> tuple[Decimal, Decimal] | None:
    """Return `(price cap per hour, total cap)` that this approval covers; None for an override, which buys nothing."""
    buys_nothing = ask.request.kind is RequestKind.OVERSPEND and not job_of(ask.request.job).makes_volume
    if ask.option is None or buys_nothing:
        return None
    job = job_of(ask.request.job)
    held = limit_of(ask)
    limit = command.cap_usd if command.cap_usd is not None or held is None else held.usd
    limits = [one for one in (limit, _left_by_the_first(ask)) if one is not None]
    total = total_cap(
        amounts_of(ask, command)[1],
        asked_usd=job.budget_cap_usd,
        approver_usd=min(limits, default=None),
        spent_usd=ask.spent_usd,
    )
    return price_cap(ask.option.price_usd_h, policy, job.max_price_usd_h), total
