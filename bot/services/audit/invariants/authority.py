"""Check that parts of a run had the approvers of the whole: cumulated from the grants, with code of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.auto_approval import AUTO_APPROVAL_PREFIX
from bot.rules.approvals.break_glass import BREAK_GLASS
from bot.services.audit.invariants.world import Violation
from ledger.kernel.entry_kind import USED
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import InstanceState
from ledger.models import Approval, GrantRow, LedgerEntry, Session
from ledger.queries.audit import Books

RULE = "the parts of a run need the approvers of the whole"
_BUYS = frozenset({GrantKind.CREATE, GrantKind.EXTEND})


def check(books: Books) -> list[Violation]:
    """Check every grant that bought time, by what its run had been granted until then."""
    runs = _runs(books)
    approvals = {row.id: row for row in books.approvals}
    return [one for run in runs.values() for one in _check(books, run, approvals)]


def _runs(books: Books) -> Mapping[str, list[Session]]:
    """Return the sessions of each run, by its first request."""
    first = {row.id: row.run_id or row.id for row in books.requests}
    runs: defaultdict[str, list[Session]] = defaultdict(list)
    for session in books.sessions:
        runs[first[session.request_id]].append(session)
    return runs


def _check(books: Books, sessions: Sequence[Session], approvals: Mapping[str, Approval]) -> Iterator[Violation]:
    mine = {one.id for one in sessions}
    grants = [row for row in books.grants if row.session_id in mine and row.kind in _BUYS]
    entries = [one for one in books.entries if one.session_id in mine and one.kind in USED]
    for grant in grants:
        approval = approvals.get(grant.approval_id)
        if approval is None or approval.two_above_usd is None or approval.rule.startswith(BREAK_GLASS):
            continue
        total = approval.total_cap_usd or Decimal(0)
        for session in sessions:
            earlier = [one for one in grants if one.session_id == session.id and _is_earlier(one, grant)]
            total += _may_cost(books, session, grant, earlier, entries, approvals)
        people = {
            vote.approver
            for vote in books.approvals
            if vote.request_id == approval.request_id
            and vote.quote_version == approval.quote_version
            and vote.decision == "approve"
            and vote.at <= grant.created_at
            and not vote.approver.startswith(AUTO_APPROVAL_PREFIX)
        }
        if total > approval.two_above_usd and len(people) < 2:
            text = f"its run may cost ${total} with it, above ${approval.two_above_usd}, and {len(people)} approved it"
            yield Violation(RULE, grant.id, text)


def _is_earlier(other: GrantRow, grant: GrantRow) -> bool:
    return other.approval_id != grant.approval_id and (other.created_at, other.id) < (grant.created_at, grant.id)


def _may_cost(
    books: Books,
    session: Session,
    grant: GrantRow,
    earlier: Sequence[GrantRow],
    entries: Sequence[LedgerEntry],
    approvals: Mapping[str, Approval],
) -> Decimal:
    """Return what a session might cost when a grant was made: its caps while it ran, what was booked once it ended."""
    at = grant.created_at
    booked = sum((_signed(one) for one in entries if one.session_id == session.id and one.at <= at), Decimal(0))
    is_own = session.id == grant.session_id
    renewed = is_own and grant.kind == GrantKind.CREATE
    if renewed or (not is_own and (_is_over(books, session, at) or _gives_way(books, session, grant))):
        return booked
    creates = [one for one in earlier if one.kind == GrantKind.CREATE]
    if not creates:
        return Decimal(0)
    since = max(one.created_at for one in creates)
    in_force = {one.approval_id for one in earlier if one.created_at >= since}
    return sum((approvals[one].total_cap_usd or Decimal(0) for one in in_force if one in approvals), Decimal(0))


def _is_over(books: Books, session: Session, at: datetime) -> bool:
    """Whether the end of a session was ordered by then, or its request was open again."""
    if session.ended_at is not None and session.ended_at <= at:
        return True
    never = (InstanceState.REJECTED, InstanceState.TOMBSTONE)
    rows = [row for row in books.instances if row.session_id == session.id and row.state not in never]
    ends = [row.terminate_asked_at or row.ended_at for row in rows]
    return all(end is not None and end <= at for end in ends)


def _gives_way(books: Books, session: Session, grant: GrantRow) -> bool:
    """Whether a grant is for the machine that a session's run moves to."""
    target = next(one.request_id for one in books.sessions if one.id == grant.session_id)
    return any(one.source_session_id == session.id and one.request_id == target for one in books.migrations)


def _signed(entry: LedgerEntry) -> Decimal:
    return -entry.amount_usd if entry.debit.startswith("payable:") else entry.amount_usd
