"""Add up what a run might cost, and how long it might run, when one of its grants was made: from the rows alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from ledger.kernel.entry_kind import USED
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import InstanceState
from ledger.models import Approval, GrantRow, Instance, LedgerEntry, Session
from ledger.queries.audit import Books

_BUYS = frozenset({GrantKind.CREATE, GrantKind.EXTEND})
_NEVER_RAN = frozenset({InstanceState.REJECTED, InstanceState.TOMBSTONE})
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Total:
    """Hold dollars and hours."""

    usd: Decimal = _ZERO
    hours: Decimal = _ZERO

    def __add__(self, other: Total) -> Total:
        return Total(self.usd + other.usd, self.hours + other.hours)


@dataclass(frozen=True, slots=True)
class RunPurchase:
    """Hold one grant that bought time, the approval it was made of, and the total of its run with it."""

    grant: GrantRow
    approval: Approval
    session: Session
    total: Total


def bought(books: Books) -> Iterator[RunPurchase]:
    """Yield every grant that bought time, with the total of its run up to it."""
    rows = _Rows(books)
    runs: defaultdict[str, list[Session]] = defaultdict(list)
    for session in books.sessions:
        runs[rows.first[session.request_id]].append(session)
    for sessions in runs.values():
        yield from _Run(rows, sessions).bought()


class _Rows:
    """The rows of the books, by the session or the id that they are looked up by."""

    def __init__(self, books: Books) -> None:
        self.first = {row.id: row.run_id or row.id for row in books.requests}
        self.asked_at = {row.id: row.created_at for row in books.requests}
        self.approvals = {row.id: row for row in books.approvals}
        self.approval_of = {row.id: row.approval_id for row in books.grants}
        self.moves = {(row.source_session_id, row.request_id) for row in books.migrations}
        self.grants: defaultdict[str, list[GrantRow]] = defaultdict(list)
        self.entries: defaultdict[str, list[LedgerEntry]] = defaultdict(list)
        self.instances: defaultdict[str, list[Instance]] = defaultdict(list)
        for grant in books.grants:
            if grant.kind in _BUYS and grant.session_id:
                self.grants[grant.session_id].append(grant)
        for entry in books.entries:
            if entry.kind in USED and entry.session_id:
                self.entries[entry.session_id].append(entry)
        for row in books.instances:
            if row.state not in _NEVER_RAN:
                self.instances[row.session_id].append(row)


class _Run:
    """The sessions of one run with their rows."""

    def __init__(self, rows: _Rows, sessions: Sequence[Session]) -> None:
        self._rows = rows
        self._sessions = sessions

    def bought(self) -> Iterator[RunPurchase]:
        """Yield each grant that bought time for the run, with the total up to it."""
        for own in self._sessions:
            for grant in self._rows.grants[own.id]:
                approval = self._rows.approvals.get(grant.approval_id)
                if approval is None:
                    continue
                total = Total(approval.total_cap_usd or _ZERO, Decimal(grant.hours))
                for session in self._sessions:
                    total += self._before(session, own, grant)
                yield RunPurchase(grant, approval, own, total)

    def _before(self, session: Session, own: Session, grant: GrantRow) -> Total:
        """Return what a session might cost before a grant: its approvals while it ran, what it used once it ended."""
        at, is_own = grant.created_at, session is own
        if is_own and grant.kind == GrantKind.CREATE:
            return Total(self._booked(session, at), self._hours(session, at))
        if not is_own and (session.id, own.request_id) in self._rows.moves:  # It gives way to the grant's machine.
            asked_at = self._rows.asked_at[own.request_id]
            return Total(self._booked(session, at), self._hours(session, min(asked_at, at)))
        if not is_own and self._is_over(session, at):
            return Total(self._booked(session, at), self._hours(session, at))
        earlier = [one for one in self._rows.grants[session.id] if _is_earlier(one, grant)]
        creates = [one for one in earlier if one.kind == GrantKind.CREATE]
        if not creates:
            return Total()
        since = max(one.created_at for one in creates)
        in_force = {one.approval_id: one for one in earlier if one.created_at >= since}
        approved = [self._rows.approvals[one] for one in in_force if one in self._rows.approvals]
        replaced = {one.approval_id for one in earlier} - set(in_force)
        return Total(
            sum((one.total_cap_usd or _ZERO for one in approved), _ZERO),
            sum((Decimal(one.hours) for one in in_force.values()), self._hours(session, at, replaced)),
        )

    def _booked(self, session: Session, at: datetime) -> Decimal:
        mine = (one for one in self._rows.entries[session.id] if one.at <= at)
        return sum((_signed(one) for one in mine), _ZERO)

    def _hours(self, session: Session, until: datetime, approvals: set[str] | None = None) -> Decimal:
        """Return the hours that machines of a session ran by then: all of them, or those under these approvals."""
        seconds = 0.0
        for row in self._rows.instances[session.id]:
            if row.sent_at is None or row.live_at is None or row.live_at > until:
                continue
            if approvals is None or self._rows.approval_of.get(row.grant_id) in approvals:
                ended = min(row.billing_until or row.ended_at or until, until)
                seconds += max((ended - row.sent_at).total_seconds(), 0.0)
        return Decimal(str(seconds)) / 3600

    def _is_over(self, session: Session, at: datetime) -> bool:
        """Whether the end of a session was ordered by then, or its request was open again."""
        if session.ended_at is not None and session.ended_at <= at:
            return True
        ends = [row.terminate_asked_at or row.ended_at for row in self._rows.instances[session.id]]
        return all(end is not None and end <= at for end in ends)


def _is_earlier(other: GrantRow, grant: GrantRow) -> bool:
    return other.approval_id != grant.approval_id and (other.created_at, other.id) < (grant.created_at, grant.id)


def _signed(entry: LedgerEntry) -> Decimal:
    return -entry.amount_usd if entry.debit.startswith("payable:") else entry.amount_usd
