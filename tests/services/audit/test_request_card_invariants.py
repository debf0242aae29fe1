"""The audit of messages: silent on repeats, and loud about a request whose message shows another one."""

from __future__ import annotations

from bot.services.audit.invariants import request_cards
from ledger.kernel.states import RequestState
from ledger.models import Approval
from ledger.queries.audit import Books
from tests.support.world import World


def rules(books: Books) -> list[str]:
    return [one.rule for one in request_cards.check(books)]


async def repeated(w: World) -> Books:
    """Three requests in one message, of which the last is open."""
    for _ in range(2):
        await w.cancel(str((await w.ask()).data["request_id"]))
    await w.ask()
    await w.settle()
    books = await w.books()
    assert [one.card_turn for one in books.requests] == [None, 1, 2]
    assert rules(books) == []
    return books


async def test_a_request_that_lost_its_message_is_found(w: World) -> None:
    books = await repeated(w)
    for state in (RequestState.PENDING, RequestState.APPROVED, RequestState.REJECTED):
        vars(books.requests[0])["state"] = state
        assert rules(books) == [request_cards.SHOWN]
    books = await w.books()
    object.__setattr__(books, "approvals", (Approval(request_id=books.requests[1].id),))
    assert rules(books) == [request_cards.SHOWN]


async def test_a_gap_and_another_channel_are_found(w: World) -> None:
    books = await repeated(w)
    books.requests[-1].card_turn = 3
    assert rules(books) == [request_cards.IN_A_ROW]
    books.requests[-1].card_turn = 2
    books.requests[-1].channel = "C0OTHER"
    assert rules(books) == [request_cards.IN_A_ROW]
