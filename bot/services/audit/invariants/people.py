"""Check that only the people who are on a session now are on its machines, and that no copy brings anybody back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bot.services.audit.invariants.world import Violation
from ledger.kernel.people.transfer_state import TransferState
from ledger.kernel.states import OPEN_INSTANCE, InstanceState
from ledger.kernel.steps.relocation_step import OVER
from ledger.models import SessionCredential
from ledger.queries.audit import Books

KEYS = "only the people of a session log in to its machine"
OWN = "what somebody brought counts only while the session is theirs"
COPIED = "a copy brings only what counted for its source"
TOGETHER = "both sides of a move have the same people"
#: On a machine that ends nothing is written any more.
_KEYED = OPEN_INSTANCE - {InstanceState.TERMINATING}


def check(books: Books) -> list[Violation]:
    """Check the keys on every open machine, and everything that people brought or share."""
    return [*_keys(books), *_own(books), *_copied(books), *_together(books)]


def _shares(books: Books) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for one in books.shares:
        found[one.request_id].add(one.person)
    return found


def _keys(books: Books) -> Iterator[Violation]:
    shares, machines = _shares(books), {one.id: one for one in books.instances if one.state in _KEYED}
    sessions = {one.id: one for one in books.sessions}
    for key in books.machine_keys:
        row = machines.get(key.instance_id)
        if row is None or not key.wanted:
            continue
        session = sessions[row.session_id]
        if key.person != session.owner and key.person not in shares[session.request_id]:
            yield Violation(KEYS, row.id, f"a key of {key.person} belongs there")


def _own(books: Books) -> Iterator[Violation]:
    requests = {one.id: one.request_id for one in books.sessions}
    given = [
        (requests[one.session_id], one.closed_at) for one in books.transfers if one.state is TransferState.ACCEPTED
    ]
    for row in books.credentials:
        for request_id, at in given:
            if request_id != row.request_id or at is None or row.created_at > at:
                continue
            if row.until is None or row.until > at:
                yield Violation(OWN, row.request_id, f"the {row.kind} {row.name} of {row.person} counts still")


def _copied(books: Books) -> Iterator[Violation]:
    rows: dict[str, list[SessionCredential]] = defaultdict(list)
    for row in books.credentials:
        rows[row.request_id].append(row)
    for move in books.migrations:
        for row in rows[move.request_id]:
            same = [
                one
                for one in rows[move.source_request_id]
                if (one.kind, one.name, one.person) == (row.kind, row.name, row.person)
                and (one.until is None or one.until >= row.created_at)
            ]
            if row.until is None and not same:
                yield Violation(COPIED, row.request_id, f"the {row.kind} {row.name} of {row.person} came with the move")


def _together(books: Books) -> Iterator[Violation]:
    shares = _shares(books)
    for move in books.migrations:
        if move.step not in OVER and shares[move.request_id] != shares[move.source_request_id]:
            yield Violation(TOGETHER, move.request_id, "its source is shared with others")
