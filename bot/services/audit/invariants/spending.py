"""Check that no instance lacks a grant, no grant lacks approvals, and nothing exceeds what was approved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from bot.rules.approvals.break_glass import BREAK_GLASS
from bot.rules.billing.metering import at_other_rates, booked_at_stops
from bot.rules.jobs.stored import job_of
from bot.rules.pricing.spend_limits import SetLimit, limit_in_force
from bot.services.audit.invariants.world import KEPT, Violation
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import USED, EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import OPEN_INSTANCE, GrantState, RequestState, SessionState
from ledger.models import Approval, GrantRow, Instance, LedgerEntry, Request
from ledger.queries.audit import Books

#: An end is kept in whole seconds, and a started second is billed in full.
SECOND = timedelta(seconds=1)


def check(books: Books) -> list[Violation]:
    """Check grants against approvals, and instances against grants."""
    found = [*_grants(books), *_limits(books), *_instances(books), *_one_per_grant(books)]
    return [*found, *_ended_by_price(books)]


def _limits(books: Books) -> Iterator[Violation]:
    """Check that the limits of the requester and the approvers hold over all attempts of a request together."""
    requests, approvals = {row.id: row for row in books.requests}, {row.id: row for row in books.approvals}
    for grant in books.grants:
        request, approval = requests.get(grant.request_id), approvals.get(grant.approval_id)
        if request is None or approval is None:
            continue
        job = job_of(request.job)
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
        if (
            row.state in KEPT
            and row.price_usd_h > _approved_usd_h(books, row, grant)
            and not _is_paid(books, row, grant)
        ):
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


def _asked_about(books: Books, row: Instance) -> list[Request]:
    """Return the overspend requests that were made about the session of an instance since it exists."""
    mine = [one for one in books.requests if one.parent_id == row.request_id and one.kind is RequestKind.OVERSPEND]
    return [one for one in mine if one.created_at >= row.created_at]


def _approved_usd_h(books: Books, row: Instance, grant: GrantRow) -> Decimal:
    """Return the highest rate approved for an instance: by its grant, or by an approved overspend request."""
    approved = {one.id for one in _asked_about(books, row) if one.state is RequestState.APPROVED}
    votes = [vote for vote in books.approvals if vote.request_id in approved and vote.decision == "approve"]
    return max([grant.price_cap_usd_h, *(vote.price_cap_usd_h for vote in votes if vote.price_cap_usd_h is not None)])


def _was_ready(books: Books, row: Instance) -> bool:
    """Whether an instance was ready once before its end was ordered."""
    return row.reachable_at is not None or any(
        event.subject == row.session_id
        and event.kind == EventKind.SESSION_MOVED
        and event.after == SessionState.RUNNING
        for event in books.events
        if event.at >= row.created_at and (row.terminate_asked_at is None or event.at <= row.terminate_asked_at)
    )


def _is_paid(books: Books, row: Instance, grant: GrantRow) -> bool:
    """Whether an instance above its approved rate may run on: it was ready, and the approved total pays until its end.

    What earlier rates cost less than the rate of now pays for more time.
    """
    session = next(one for one in books.sessions if one.id == row.session_id)
    if not _was_ready(books, row):
        return False
    used = [one for one in books.entries if one.instance_id == row.id and one.kind in USED]
    usd = sum((-one.amount_usd if one.debit.startswith("payable:") else one.amount_usd for one in used), Decimal(0))
    gpu_usd_h = max(row.price_usd_h - row.storage_usd_h, Decimal(0))
    rates = {BookedComponent.GPU: gpu_usd_h, BookedComponent.STORAGE: row.storage_usd_h}
    booked = [one for one in used if one.kind == EntryKind.ACCRUE and "/h" in one.key and "/disk/" not in one.key]
    hours = Counter(one.component for one in booked)
    gpu_parts_s = max(row.gpu_booked_s or 0, row.gpu_split_s or 0)
    parts_s = {BookedComponent.GPU: gpu_parts_s, BookedComponent.STORAGE: row.storage_split_s or 0}
    parts_usd = sum(booked_at_stops(rate, parts_s[name], hours[name]) for name, rate in rates.items())
    before_usd = at_other_rates(usd - parts_usd, [(hours[name], rate) for name, rate in rates.items()])
    longer = [one for one in books.grants if one.session_id == row.session_id and one.kind == GrantKind.EXTEND]
    longer_usd = sum((g.total_cap_usd for g in longer if g.state is not GrantState.VOID), Decimal(0))
    cap_usd = grant.total_cap_usd + longer_usd / session.nodes
    paid_h = float((cap_usd - before_usd) / row.price_usd_h)
    paid_until = (row.sent_at or row.created_at) + timedelta(hours=paid_h) + SECOND
    # A volume that outgrew its amount is kept for its days of notices.
    return session.deadline is None or session.deadline <= paid_until or session.volume_grace_at is not None


def _ended_by_price(books: Books) -> Iterator[Violation]:
    """Check that nobody's instance ended for its rate alone after it was ready: a person rejected that rate."""
    for row in books.instances:
        if row.outcome_code != EndReason.BILLED_ABOVE_CAP or row.terminate_asked_at is None:
            continue
        answers = [one.decided_at for one in _asked_about(books, row) if one.state is RequestState.REJECTED]
        answered = any(at is not None and at <= row.terminate_asked_at for at in answers)
        if _was_ready(books, row) and not answered:
            text = "it was ready, and nobody rejected its new rate"
            yield Violation("no running instance is ended by price alone below its approved total", row.id, text)


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
