"""Check that no instance lacks a grant, no grant lacks approvals, and nothing exceeds what was approved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from bot.rules.approvals.break_glass import BREAK_GLASS
from bot.rules.pricing.spend_limits import SetLimit, limit_in_force
from bot.services.audit.invariants.world import KEPT, Violation
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import OPEN_INSTANCE, GrantState
from ledger.models import Approval, GrantRow, LedgerEntry
from ledger.queries.audit import Books


def check(books: Books) -> list[Violation]:
    """Check grants against approvals, and instances against grants."""
    return [*_grants(books), *_limits(books), *_instances(books), *_one_per_grant(books)]


def _limits(books: Books) -> Iterator[Violation]:
    """Check that the limits of the requester and the approvers hold over all attempts of a request together."""
    requests, approvals = {row.id: row for row in books.requests}, {row.id: row for row in books.approvals}
    for grant in books.grants:
        request, approval = requests.get(grant.request_id), approvals.get(grant.approval_id)
        if request is None or approval is None:
            continue
        job = request.job
        spent = sum((one.amount_usd for one in books.entries if _before(one, grant)), Decimal(0))
        held = limit_in_force(
            SetLimit(vote.quote_version, vote.limit_usd, vote.approver)
            for vote in books.approvals
            if vote.request_id == request.id and vote.limit_usd is not None and vote.at <= grant.created_at
        )
        for what, limit in (("requester", job.budget_cap_usd), ("approvers", held.usd if held else None)):
            if limit is not None and grant.total_cap_usd > max(limit + _longer(books, grant) - spent, Decimal(0)):
                text = f"it covers ${grant.total_cap_usd} after ${spent} of the ${limit} that the {what} set"
                yield Violation("limits hold over all attempts", grant.id, text)
        if job.max_price_usd_h is not None and grant.price_cap_usd_h > job.max_price_usd_h:
            text = f"it covers ${grant.price_cap_usd_h}/h, and the requester set ${job.max_price_usd_h}/h"
            yield Violation("limits hold over all attempts", grant.id, text)


def _longer(books: Books, grant: GrantRow) -> Decimal:
    """Return what extensions had added before a replacement's grant: they have approvals of their own."""
    if grant.kind != GrantKind.REPLACE:
        return Decimal(0)
    mine = [g for g in books.grants if g.kind == GrantKind.EXTEND and g.session_id == grant.session_id]
    return sum((one.total_cap_usd for one in mine if one.created_at <= grant.created_at), Decimal(0))


def _before(entry: LedgerEntry, grant: GrantRow) -> bool:
    """Whether an accrual was booked before the grant was made.

    An extension comes on top of what was spent until then.
    """
    return (
        grant.kind != GrantKind.EXTEND
        and entry.kind == EntryKind.ACCRUE
        and entry.session_id == grant.session_id
        and entry.at <= grant.created_at
    )


def _grants(books: Books) -> Iterator[Violation]:
    approvals = {row.id: row for row in books.approvals}
    required = {row.id: row.required_approvals for row in books.requests}
    for grant in books.grants:
        approval = approvals.get(grant.approval_id)
        if approval is None or approval.decision != "approve" or approval.request_id != grant.request_id:
            yield Violation("no spend without approval", grant.id, "its approval is missing or says no")
            continue
        votes = [
            vote
            for vote in books.approvals
            if vote.request_id == grant.request_id
            and vote.quote_version == approval.quote_version
            and vote.at <= grant.created_at
        ]
        yes = {vote.approver for vote in votes if vote.decision == "approve"}
        # A break-glass start has one approver; a reopened request needs its usual number.
        needed = 1 if approval.rule.startswith(BREAK_GLASS) else min(required[grant.request_id], 2)
        if any(vote.decision == "reject" for vote in votes) or len(yes) < needed:
            yield Violation("no spend without approval", grant.id, "its quote version was not approved in full")
        yield from _covered(grant, approval, _longer(books, grant))


def _covered(grant: GrantRow, approval: Approval, longer_usd: Decimal) -> list[Violation]:
    """Check that a grant never exceeds what its approval covers, with what extensions added to that."""
    # A hold adds no dollars; its hours come after the requested ones, and approvers saw them beside those.
    hours = None if grant.kind == GrantKind.HOLD else approval.hours
    pairs = (
        ("price per hour", grant.price_cap_usd_h, approval.price_cap_usd_h),
        ("total", grant.total_cap_usd, None if approval.total_cap_usd is None else approval.total_cap_usd + longer_usd),
        ("hours", Decimal(grant.hours), Decimal(hours) if hours else None),
    )
    return [
        Violation("a grant stays inside its approval", grant.id, f"its {what} is {mine}, approved was {limit}")
        for what, mine, limit in pairs
        if limit is not None and mine > limit
    ]


def _instances(books: Books) -> Iterator[Violation]:
    grants = {row.id: row for row in books.grants}
    for row in books.instances:
        grant = grants.get(row.grant_id)
        if grant is None or grant.request_id != row.request_id:
            yield Violation("no spend without approval", row.id, "it has no grant of its request")
            continue
        if row.state in KEPT and row.price_usd_h > grant.price_cap_usd_h:
            text = f"it is billed ${row.price_usd_h}/h under a cap of ${grant.price_cap_usd_h}/h"
            yield Violation("never above the cap", row.id, text)
        quoted = row.offer.get("price_usd_h")
        if row.sent_at is not None and (quoted is None or Decimal(str(quoted)) > grant.price_cap_usd_h):
            text = f"it was sent at ${quoted}/h under a cap of ${grant.price_cap_usd_h}/h"
            yield Violation("never above the cap", row.id, text)
        if row.live_at is not None and grant.state is not GrantState.USED:
            yield Violation("a grant is used once", row.id, f"it came to life and its grant is {grant.state}")
        if row.sent_at is not None and row.sent_at >= grant.until:
            yield Violation("no spend without approval", row.id, "it was sent after its grant ran out")


def _one_per_grant(books: Books) -> list[Violation]:
    rows = Counter(row.grant_id for row in books.instances if row.state in OPEN_INSTANCE)
    kept = Counter(row.grant_id for row in books.instances if row.state in KEPT)
    lived = Counter(row.grant_id for row in books.instances if row.live_at is not None)
    return [
        Violation(rule, grant_id, f"{count} rows have it")
        for rule, counts in (
            ("one open row per grant", rows),
            ("one kept per grant", kept),
            ("a grant is used once", lived),
        )
        for grant_id, count in counts.items()
        if count > 1
    ]
