"""Check that every request which needs a decision, or had one, is shown: no other request took its message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bot.services.audit.invariants.world import Violation
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.audit import Books

SHOWN = "a message shows another request only after its own ended undecided"
IN_A_ROW = "the requests of a message follow each other"
_UNDECIDED = frozenset({RequestState.CANCELLED, RequestState.EXPIRED, RequestState.UNAVAILABLE})


def check(books: Books) -> list[Violation]:
    """Check each message that shows, or showed, more than one request."""
    requests, following = {one.id: one for one in books.requests}, defaultdict[str, list[Request]](list)
    for request in books.requests:
        if request.card_of is not None:
            following[request.card_of].append(request)
    parents = {one.id: one.parent_id or one.id for one in books.requests}
    voted = {one.request_id for one in books.approvals} | {one.request_id for one in books.advances}
    voted |= {parents[one] for one in voted if one in parents}
    return [
        violation
        for card_id, rows in following.items()
        for violation in _of_one(requests[card_id], sorted(rows, key=lambda one: one.card_turn or 0), voted)
    ]


def _of_one(first: Request, rows: list[Request], voted: set[str]) -> Iterator[Violation]:
    own = (first.channel, first.kind, first.parent_id)
    for turn, request in enumerate(rows, start=1):
        if request.card_turn != turn or (request.channel, request.kind, request.parent_id) != own:
            yield Violation(IN_A_ROW, request.id, f"it is number {request.card_turn} in the message of {first.id}")
    for request in (first, *rows[:-1]):
        if request.state not in _UNDECIDED or request.id in voted:
            yield Violation(SHOWN, request.id, f"it is {request.state}, and its message shows {rows[-1].id}")
