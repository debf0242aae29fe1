"""Read the approvals of a request: those of its current offers, whose they are, and the hours that they cover."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from bot.rules.values.phrases import hours
from bot.services.grants import amendments
from bot.slack.blocks import job as job_words
from bot.slack.blocks.elements import person
from bot.slack.blocks.offers import line
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
    if option is None or request.state is not RequestState.APPROVED:
        return job_words.title(request.job)
    return f"{line(option).gpus} for {hours(approved_hours(view))}"


def approver_names(votes: Iterable[Approval]) -> str:
    """Mention who approved, and for whom a delegate did."""
    return " and ".join(_approver(vote) for vote in list(votes)[:4])


def _approver(vote: Approval) -> str:
    instead = f" for {person(vote.on_behalf_of)}" if vote.on_behalf_of else ""
    return person(vote.approver) + instead
