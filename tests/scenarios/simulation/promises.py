"""What the whole history of a seed must show besides the invariants: who approved, and how each create ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from bot.rules.policy.timing import Timing
from bot.services.instances.unknown_outcome import quarantine
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.audit import Books
from providers.contract import Provider
from providers.sandbox.engine import TrueInstance


def broken(
    books: Books, true: Collection[TrueInstance], providers: Mapping[str, Provider], approvers: Collection[str]
) -> Iterator[str]:
    """Name every promise that this history breaks; `approvers` are the references of those who may approve."""
    yield from _approvals(books, approvers)
    yield from _refusals(books.instances, true)
    yield from _given_up(books.instances, providers)
    yield from _beside(books.instances)


def _approvals(books: Books, approvers: Collection[str]) -> Iterator[str]:
    mine = {row.id: row.requester for row in books.requests}
    for one in books.approvals:
        if one.approver not in approvers or one.approver == mine[one.request_id]:
            yield f"only approvers approve: {one.request_id} by {one.approver}"


def _refusals(rows: Iterable[Instance], true: Collection[TrueInstance]) -> Iterator[str]:
    """A create that counts as refused has made nothing."""
    names = [str(one.name).lower() for one in true]
    for row in rows:
        refused = row.state is InstanceState.REJECTED and row.sent_at is not None
        if refused and any(name.endswith(row.label) for name in names):
            yield f"a refusal made nothing: {row.id} is rejected ({row.outcome_code}), and its instance existed"


def _given_up(rows: Iterable[Instance], providers: Mapping[str, Provider]) -> Iterator[str]:
    """A create whose outcome is unknown is searched for as long as its cloud's W says."""
    for row in rows:
        if row.state is InstanceState.TOMBSTONE and row.sent_at is not None and row.ended_at is not None:
            waited = row.ended_at - row.sent_at
            if waited < quarantine(providers[row.cloud].capabilities, Timing()):
                yield f"an unknown outcome is searched for: {row.id} was given up after {waited}"


def _beside(rows: Collection[Instance]) -> Iterator[str]:
    """A create is sent only when every earlier one of its request has ended."""
    sent = [(row, row.sent_at) for row in rows if row.sent_at is not None]
    for row, sent_at in sent:
        for other, _ in sent:
            earlier = other.request_id == row.request_id and other.n < row.n
            closed = other.state is InstanceState.REJECTED or (other.ended_at and other.ended_at <= sent_at)
            if earlier and not closed:
                yield f"nothing is bought twice: {row.id} was sent while {other.id} was not closed"
