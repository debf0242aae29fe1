"""Check that what was approved in advance was used once and inside its cover, and that what waits holds nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from bot.services.audit.invariants.world import Violation
from ledger.kernel.states import GrantState, RequestState
from ledger.models import AdvanceApproval, Approval, GrantRow, Instance, Session
from ledger.queries.audit import Books
from ledger.queries.lookups import RESERVES

INSIDE = "an approval in advance is used inside its cover"
ONCE = "an approval in advance is used once"
NOTHING = "a waiting request holds nothing"


def check(books: Books) -> list[Violation]:
    """Check approvals in advance against the approvals that were made of them, and waiting requests."""
    return [*_used(books), *_made_of(books), *_holding(books)]


def _used(books: Books) -> Iterator[Violation]:
    counts = Counter(vote.source_approval_id for vote in books.approvals if vote.source_approval_id)
    requests = {row.id: row for row in books.requests}
    for row in books.advances:
        uses = counts.get(row.id, 0)
        if uses > 1 or (uses == 1) != (row.state is GrantState.USED):
            yield Violation(ONCE, row.id, f"it is {row.state}, and {uses} approvals were made of it")
        request = requests.get(row.request_id)
        if row.state is GrantState.OPEN and (request is None or request.state not in RESERVES):
            yield Violation("budgets never overshoot", row.id, "its request does not wait and it is still open")


def _made_of(books: Books) -> Iterator[Violation]:
    advances = {row.id: row for row in books.advances}
    options = {row.id: row for row in books.options}
    for vote in books.approvals:
        if vote.source_approval_id is None:
            continue
        row = advances.get(vote.source_approval_id)
        if row is None or row.approver != vote.approver or row.request_id != vote.request_id:
            yield Violation(INSIDE, vote.id, "it was made of somebody else's approval in advance, or of none")
            continue
        option = options.get(vote.option_id or "")
        offer = option.offer if option is not None else {}
        yield from _inside(vote, row, str(offer.get("gpu", "")), int(offer.get("gpu_count", 0)))


def _inside(vote: Approval, row: AdvanceApproval, gpu: str, gpu_count: int) -> Iterator[Violation]:
    pairs = (
        ("price per hour", vote.price_cap_usd_h or Decimal(0), row.price_cap_usd_h),
        ("total", vote.total_cap_usd or Decimal(0), row.total_cap_usd),
        ("hours", Decimal(vote.hours or 0), Decimal(row.hours)),
    )
    for what, mine, limit in pairs:
        if mine > limit:
            yield Violation(INSIDE, vote.id, f"its {what} is {mine}, approved in advance was {limit}")
    names = row.gpu["names"]
    if (names and gpu not in names) or not row.gpu["count_min"] <= gpu_count <= row.gpu["count_max"]:
        yield Violation(INSIDE, vote.id, f"it is for {gpu_count} {gpu}, which was not approved in advance")
    if not row.at <= vote.at < row.until:
        yield Violation(INSIDE, vote.id, f"it was used at {vote.at}, approved until {row.until}")


def _holding(books: Books) -> Iterator[Violation]:
    limits = {row.request_id for row in books.wait_limits}
    owned: tuple[GrantRow | Session | Instance, ...] = (*books.grants, *books.sessions, *books.instances)
    busy = {row.request_id for row in owned}
    for request in books.requests:
        if request.state is not RequestState.WAITING:
            continue
        if request.id not in limits:
            yield Violation(NOTHING, request.id, "it has no limits")
        if request.id in busy:
            yield Violation(NOTHING, request.id, "it has a grant, a session or an instance")
