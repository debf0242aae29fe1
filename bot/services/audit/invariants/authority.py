"""Check that parts of a run had the approvals of the whole: two approvers, its tier, and the override of its hours.

Totals are cumulated from the grants, with code of its own. Each is judged by the policy that was in force when it was
decided, which its approval stores. Approvals of older releases store none, and neither do adoptions; they are not
judged, nor are break-glass starts. So a live edit of the policy raises no alarm.

The totals are never above those of the decision, and a tier is the first row of a table that a spend belongs to. So a
spend may have belonged to an earlier row of the table than its total here says, and to a row that looks at GPUs or a
team. It is reported when the approvals suffice for none of these rows. Who may approve is checked where the policy
names people; who is in a user group, only Slack knows. Each person is judged by the groups at their own approval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from bot.rules.approvals.auto_approval import AUTO_APPROVAL_PREFIX
from bot.rules.approvals.break_glass import BREAK_GLASS
from bot.rules.jobs.stored import job_of
from bot.services.audit.invariants.runs import RunPurchase, bought
from bot.services.audit.invariants.world import Violation
from ledger.kernel.actor import Actor
from ledger.kernel.grant import GrantKind
from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.request_kind import RequestKind
from ledger.models import Approval, Request, Transfer
from ledger.queries.audit import Books

RULE = "the parts of a run need the approvers of the whole"
TIERS = "the parts of a run need the tier of the whole"
HOURS = "the parts of a run need the override of their hours in all"
#: A minute is the rounding of hours, and no time that anybody buys.
_ROUNDING_H = Decimal(1) / 60


def check(books: Books) -> list[Violation]:
    """Check every grant that bought time, by what its run had been granted until then."""
    rows = _Rows(books)
    return [
        violation
        for part in bought(books)
        if not part.approval.rule.startswith(BREAK_GLASS)
        for violation in _check(rows, part)
    ]


class _Rows:
    """The rows of the books, by the request or the session that they belong to."""

    def __init__(self, books: Books) -> None:
        self.requests = {row.id: row for row in books.requests}
        self.overrides: defaultdict[str | None, list[Request]] = defaultdict(list)
        self.votes: defaultdict[str, list[Approval]] = defaultdict(list)
        self.transfers: defaultdict[str, list[Transfer]] = defaultdict(list)
        for request in books.requests:
            if request.kind is RequestKind.OVERRIDE_12H:
                self.overrides[request.parent_id].append(request)
        for vote in books.approvals:
            if vote.decision == "approve" and not vote.approver.startswith(AUTO_APPROVAL_PREFIX):
                self.votes[vote.request_id].append(vote)
        for transfer in books.transfers:
            if transfer.state == TransferState.ACCEPTED:
                self.transfers[transfer.session_id].append(transfer)


def _check(rows: _Rows, part: RunPurchase) -> Iterator[Violation]:
    approval, usd = part.approval, part.total.usd
    votes = _votes(rows, part, approval.request_id, approval.quote_version)
    if approval.two_above_usd is not None and usd > approval.two_above_usd and _number(votes) < 2:
        text = f"its run may cost ${usd} with it, above ${approval.two_above_usd}, and {_number(votes)} approved it"
        yield Violation(RULE, part.grant.id, text)
    limits = approval.policy_limits
    if limits is None:
        return
    tiers = _tiers(limits, part)
    if tiers and not any(_number([vote for vote in votes if _may(vote, tier)]) >= tier["approvals"] for tier in tiers):
        text = f"with it its run is in tier {tiers[-1]['name']}, and {_number(votes)} approved it"
        yield Violation(TIERS, part.grant.id, f"{text}, or somebody outside its group did")
    is_volume = job_of(rows.requests[part.session.request_id].job).makes_volume
    if not is_volume and part.total.hours > Decimal(limits["max_hours"]) + _ROUNDING_H:
        yield from _override(rows, part, votes)


def _votes(rows: _Rows, part: RunPurchase, request_id: str, version: int | None) -> list[Approval]:
    """Return the approvals that people had given a request by the time of a grant."""
    return [
        vote
        for vote in rows.votes[request_id]
        if version in (None, vote.quote_version) and vote.at <= part.grant.created_at
    ]


def _number(votes: list[Approval]) -> int:
    return len({vote.approver for vote in votes})


def _tiers(limits: Mapping[str, Any], part: RunPurchase) -> list[Mapping[str, Any]]:
    """Return the rows that a spend may belong to; none where it may belong to no row at all."""
    rows: list[Mapping[str, Any]] = []
    for row in limits["tiers"]:
        rows.append(row)
        is_above = _is_above(part.total.usd, row["above_usd"]) and _is_above(part.total.hours, row["above_hours"])
        if is_above and row["only_amounts"]:
            return rows
    return []


def _is_above(number: Decimal, limit: str | None) -> bool:
    return limit is None or number > Decimal(limit)


def _may(vote: Approval, row: Mapping[str, Any]) -> bool:
    """Whether somebody might approve in a tier, by the policy at their own approval."""
    own = (vote.policy_limits or {}).get("tiers", ())
    people = next((one["people"] for one in own if one["name"] == row["name"]), None)
    return people is None or not {_key(ref) for ref in (vote.approver, vote.on_behalf_of) if ref}.isdisjoint(people)


def _key(ref: str) -> str:
    actor = Actor.from_ref(ref)
    return f"{actor.kind}:{actor.id}"


def _override(rows: _Rows, part: RunPurchase, votes: list[Approval]) -> Iterator[Violation]:
    """Check that somebody else than the owner approved so many hours: an extension is its own override."""
    owner, hours = _key(_owner_at(rows, part)), part.total.hours
    if part.grant.kind == GrantKind.CREATE:
        overrides = [
            override
            for override in rows.overrides[part.approval.request_id]
            if job_of(override.job).hours + job_of(override.job).already_hours + _ROUNDING_H >= hours
        ]
        votes = [vote for override in overrides for vote in _votes(rows, part, override.id, None)]
    if not any(_key(vote.approver) != owner for vote in votes):
        limit = (part.approval.policy_limits or {}).get("max_hours")
        text = f"its run may take {hours:.2f} hours with it, above {limit}, and nobody but its owner approved that"
        yield Violation(HOURS, part.grant.id, text)


def _owner_at(rows: _Rows, part: RunPurchase) -> str:
    """Return whose the session was at the time of a grant: the first to transfer it since, or its owner."""
    since = [
        (transfer.closed_at, transfer.from_owner)
        for transfer in rows.transfers[part.session.id]
        if transfer.closed_at is not None and transfer.closed_at >= part.grant.created_at
    ]
    return min(since)[1] if since else part.session.owner
