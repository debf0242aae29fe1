"""Compute what approvers changed of a request (fewer hours, a lower limit, another offer) and notify its requester."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals import amendments
from bot.rules.approvals.amendments import AmendedTerms
from bot.rules.jobs.stored import job_of
from bot.rules.market.estimate import Estimate
from bot.rules.policy.policy import Policy
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import rate
from bot.services.market.codec import components_of, estimate_from_json
from bot.services.people import direct_messages
from ledger.core import Tx
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RENTS, RequestKind
from ledger.models import Approval, Option, Request
from ledger.queries.overspend import SpendTerms

#: Kinds of requests that buy time: an approver may give less of it than was requested.
CHANGEABLE = RENTS | {RequestKind.EXTEND}


def amended_terms(request: Request, votes: Sequence[Approval]) -> AmendedTerms:
    """Return the terms after the approvals of a request's current offers; `votes` may contain others too."""
    mine = [one for one in votes if one.quote_version == request.quote_version and one.decision == "approve"]
    asked = job_of(request.job).hours
    shorter = [Decimal(one.hours) for one in mine if one.hours is not None and Decimal(one.hours) < asked]
    limits = [one.limit_usd for one in mine if one.limit_usd is not None]
    return AmendedTerms(
        request.id,
        request.quote_version,
        min(shorter, default=None),
        min(limits, default=None),
    )


def most_hours(request: Request, votes: Sequence[Approval]) -> Decimal:
    """Return the longest time that can be approved: the requested one, or what an earlier approver left of it."""
    return amended_terms(request, votes).hours or job_of(request.job).hours


def time_of(request: Request, votes: Sequence[Approval], wanted: Decimal | None) -> Decimal:
    """Return the hours that an approval covers: the wanted hours if they are fewer."""
    most = most_hours(request, votes)
    return wanted if wanted is not None and wanted.is_finite() and 0 < wanted < most else most


def amounts(request: Request, option: Option, time_h: Decimal) -> tuple[Decimal, Decimal]:
    """Return `(expected, worst)` dollars of an option for these hours."""
    asked = job_of(request.job).hours
    if time_h >= asked:
        return option.expected_usd, option.worst_usd
    return shortened(request.kind, estimate_from_json(option.estimate), asked, time_h)


def besides_hours(request: Request, option: Option, time_h: Decimal) -> str:
    """Say what the expected total of an option for these hours holds besides them; empty where that is little."""
    parts = components_of(option)
    asked = job_of(request.job).hours
    return amendments.besides_hours(amendments.parts_for(parts, asked, time_h) if time_h < asked else parts)


def amendment_summary(request: Request, approval: Approval, other_offer: str = "") -> str:
    """Say what an approval changed of a request; empty when it approved the requested terms and the first offer."""
    asked = job_of(request.job).hours
    return amendments.amendment_summary(asked, Decimal(approval.hours or asked), approval.limit_usd, other_offer)


def hours_of(terms: SpendTerms) -> Decimal:
    """Return the approved hours."""
    return terms.asked_h if terms.hours is None else terms.hours


def expected(kind: RequestKind, terms: SpendTerms) -> Decimal:
    """Return the dollars that an approval agreed to: the option's estimate for the amended hours and limit."""
    usd = terms.expected_usd
    if terms.hours is not None:
        usd, _ = shortened(kind, estimate_from_json(terms.estimate), terms.asked_h, terms.hours)
    return usd if terms.total_cap_usd is None else min(usd, terms.total_cap_usd)


def shortened(kind: RequestKind, estimate: Estimate, asked_h: Decimal, time_h: Decimal) -> tuple[Decimal, Decimal]:
    """Return `(expected, worst)` dollars for fewer hours.

    An instance that already runs has paid the least that its cloud bills.
    """
    least_h = Decimal(0) if kind is RequestKind.EXTEND else amendments.LEAST_BILLED_H
    return amendments.shortened(estimate, asked_h, time_h, least_h)


async def notify_requester(
    tx: Tx, policy: Policy, request: Request, option: Option, approval: Approval, now: datetime
) -> None:
    """Notify the requester of what the approval changed, so that they can end a session they cannot use."""
    said = amendment_summary(request, approval, option.offer_id if option.rank > 1 else "")
    if not said:
        return
    short = short_id(request.id)
    if amendment_summary(request, approval):
        approved = f"Approved with changes: {said}"
    else:  # One of the listed options, as it was listed: a choice and no change.
        approved = f"Approved: #{option.rank} on {option.cloud}, {rate(option.price_usd_h)}"
    text = f"{approved} (request {short}). Changed your mind? {cli_command(f'shutdown {short}')}"
    subject = f"{request.id}/{request.quote_version}/changed"
    await direct_messages.notify(tx, policy, now, request.requester, subject=subject, text=text)
