"""Build the card of a request that waits for an offer, with its buttons to approve in advance, reject and cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bot.rules.jobs.stored import job_of
from bot.rules.jobs.waiting_text import LOOKS, waits_for
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import usd
from bot.slack.blocks.approvals import APPROVE
from bot.slack.blocks.elements import Block, actions, button, code, context, dollars, person, safe, section, when
from ledger.kernel.ids import short_id
from ledger.queries.views import RequestView

REJECT: Final = "reject"
CANCEL: Final = "cancel"
REVOKE: Final = "revoke"
REASON_MAX: Final = 100


def card(view: RequestView, policy: Policy, approvers: str) -> tuple[list[str], list[Block]]:
    """Return the spoken lines and the blocks: for what it waits, until when, and who approved it in advance."""
    request = view.request
    people = " with ".join([person(request.requester), *filter(None, [", ".join(map(person, view.shared_with))])])
    lead = f"*Waiting for an offer* · {people} · {code(short_id(request.id))}"
    reason = [f"“{safe(request.reason, REASON_MAX)}”"] if request.reason else []
    lines = _lines(view)
    needs = _needs(view, policy, approvers)
    blocks = [section("\n".join([lead, *reason])), section("\n".join(lines))]
    blocks += buttons(view) if policy.allow_slack_decisions else []
    return [*lines, *(f"{one}." for one in needs)], [*blocks, context(" · ".join(needs))]


def _lines(view: RequestView) -> list[str]:
    limits, request = view.limits, view.request
    if limits is None:
        return [":hourglass_flowing_sand: It waits for an offer."]
    said = waits_for(job_of(request.job), limits.from_at, limits.until, when)
    every = LOOKS if job_of(request.job).wait else ""
    lines = [f":hourglass_flowing_sand: It {said}.{every}"]
    if limits.total_cap_usd is not None:
        lines.append(f"It never costs more than {dollars(limits.total_cap_usd)}. Until then it buys nothing.")
    return lines


def _needs(view: RequestView, policy: Policy, approvers: str) -> list[str]:
    given = [f"{person(one.approver)} up to {dollars(one.total_cap_usd)}" for one in view.in_advance]
    parts = [f":white_check_mark: Approved in advance by {' and '.join(given)}"] if given else []
    if view.limits is None or view.limits.price_cap_usd_h is None:
        parts.append("Without a price limit it is approved when it shows an offer")
    elif approvers and not given:
        parts.append(f"{approvers} can approve its limits in advance")
    if not policy.allow_slack_decisions and view.limits is not None:
        parts.append(f"Approve in a terminal: {code(f'gpu-shopper approve {short_id(view.request.id)}')}")
    return [*parts, f"expires {when(view.request.expires_at)}"]


def buttons(view: RequestView) -> list[Block]:
    """Build the buttons: approve in advance where there is a price limit, reject, cancel, and revoke."""
    request, limits = view.request, view.limits
    approve = [one.token for one in view.tokens if one.action == APPROVE]
    made: list[Block] = []
    if limits is not None and limits.total_cap_usd is not None and approve:
        most = usd(limits.total_cap_usd)
        label = f"Approve in advance what it may cost, at most {most}"
        made.append(button("Approve in advance", APPROVE, approve[0], style="primary", label=label))
    made += _others(view, [one.token for one in view.tokens if one.action == REJECT])
    if view.in_advance:
        made.append(button("Revoke", REVOKE, request.id, label="Revoke your approval in advance"))
    return [actions(*made)]


def _others(view: RequestView, reject: Sequence[str]) -> list[Block]:
    made = [button("Reject…", REJECT, one, style="danger", label="Reject this request") for one in reject[:1]]
    return [*made, button("Cancel", CANCEL, view.request.id, label="Withdraw your own request")]
