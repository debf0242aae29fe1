"""Read the approvals of a request: those of its current offers, who gave them, their hours, the override."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Final

from bot.rules.jobs import job_text
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.pricing import hours_cap
from bot.rules.values.phrases import brief, hour_limit, hours
from bot.services.grants import amendments
from bot.slack.blocks.elements import person
from bot.slack.blocks.offers import line
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Approval
from ledger.queries.views import RequestView

APPROVE: Final = "approve"


def votes_of(view: RequestView) -> list[Approval]:
    """Return the approvals of the current offers."""
    version = view.request.quote_version
    return [vote for vote in view.approvals if vote.decision == APPROVE and vote.quote_version == version]


def approved_hours(view: RequestView) -> Decimal:
    """Return the hours that are approved now, extensions included."""
    session = view.session
    return Decimal(session.hours) if session is not None else amendments.most_hours(view.request, votes_of(view))


def machine_title(view: RequestView) -> str:
    """Name the machine of a request, unescaped: as requested or, once approved, the offer that was taken.

    A request may name several GPUs; after the approval only one of them is meant.
    """
    request, row = view.request, view.instances[-1] if view.instances else None
    taken = row.option_id if row is not None and row.option_id else request.chosen_option_id
    option = next((one for one in view.options if one.id == taken), None)
    job = job_of(request.job)
    if option is None or request.state is not RequestState.APPROVED:
        return job_text.title(job)
    if job.makes_volume:
        return job_text.title(replace(job, hours=approved_hours(view)))
    return f"{line(option).gpus} for {hours(approved_hours(view))}"


def missing_approvals(view: RequestView) -> int:
    """Return how many approvals a request still needs."""
    return max(view.request.required_approvals - len(votes_of(view)), 1)


def approver_names(votes: Iterable[Approval]) -> str:
    """Mention who approved, and for whom a delegate did."""
    return " and ".join(_approver(vote) for vote in list(votes)[:4])


def _approver(vote: Approval) -> str:
    instead = f" for {person(vote.on_behalf_of)}" if vote.on_behalf_of else ""
    return person(vote.approver) + instead


def waits_for_override(view: RequestView) -> bool:
    """Whether approving a request also approves the hours above the limit."""
    return view.override is not None and view.override.state is RequestState.PENDING


def override_note(view: RequestView, policy: Policy, *, with_time: bool) -> str:
    """Say that an approval includes the override, or who gave it already; empty up to the limit on hours."""
    over, request = view.override, view.request
    named = hour_limit(policy.max_hours)
    limit = f"the {named} limit"
    includes = "approving includes the override"
    if over is not None and over.state is RequestState.PENDING:
        allowed = job_of(over.job)
        time = f"{brief(allowed.hours + allowed.already_hours)} is above" if with_time else "Above"
        return f":warning: *{time} {limit}*: {includes}."
    if over is not None and over.state is RequestState.APPROVED:
        return f":warning: {named} override by {person(over.decided_by or '')}."
    job = job_of(request.job)
    total_h = job.counted(job.already_hours + amendments.most_hours(request, view.approvals))
    if request.kind is RequestKind.EXTEND and hours_cap.is_above(policy, total_h):
        return f":warning: *{brief(total_h)} in all is above {limit}*: {includes}."
    return ""


def override_given(view: RequestView, policy: Policy) -> str:
    """Say who gave the override of an approved request; empty where it needed none."""
    over, votes, named = view.override, votes_of(view), hour_limit(policy.max_hours)
    if over is not None and over.state is RequestState.APPROVED and over.decided_by:
        return f"{named} override by {person(over.decided_by)}."
    if view.request.kind is RequestKind.EXTEND and votes:
        job = job_of(view.request.job)
        total_h = job.counted(job.already_hours + Decimal(votes[-1].hours or job.hours))
        return f"{named} override by {person(votes[-1].approver)}." if hours_cap.is_above(policy, total_h) else ""
    return ""
