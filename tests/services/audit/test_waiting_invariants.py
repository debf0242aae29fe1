"""The audit of requests that wait: silent on a good walk, and loud about each cover that is broken."""

from __future__ import annotations

import copy
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import inspect

from bot.services.audit.invariants import waiting
from ledger.kernel.states import GrantState, RequestState
from ledger.queries.audit import Books
from tests.support.world import CAROL, World


@pytest.fixture
async def books(w: World) -> Books:
    """One request that was launched by an approval in advance, and one that waits with one."""
    said: dict[str, Any] = {"wait": True, "start_at": "1h", "max_price_usd_h": Decimal(5)}
    used = await w.ask(**said)
    await w.settle()
    await w.decide(str(used.data["request_id"]))
    await w.run(3700, 600)
    other = await w.ask(**said)
    await w.settle()
    await w.decide(str(other.data["request_id"]), CAROL)
    found = await w.books()
    assert waiting.check(found) == []
    return found


def changed(rows: Books, table: str, place: int, **values: Any) -> Books:
    """The same books with other values in one row, as a broken ledger would have them."""
    every = list(getattr(rows, table))
    row = copy.copy(every[place])
    made = type(row)(**{one.key: getattr(row, one.key) for one in inspect(type(row)).column_attrs} | values)
    every[place] = made
    names = {item: getattr(rows, item) for item in Books.__dataclass_fields__}
    return Books(**{**names, table: tuple(every)})


def rules(rows: Books) -> set[str]:
    return {one.rule for one in waiting.check(rows)}


async def test_each_broken_cover_is_found(books: Books) -> None:
    vote = next(place for place, row in enumerate(books.approvals) if row.source_approval_id)
    row = books.approvals[vote]
    (given,) = (place for place, one in enumerate(books.advances) if one.state is GrantState.USED)
    for values in (
        {"price_cap_usd_h": Decimal(6)},
        {"total_cap_usd": Decimal(600)},
        {"hours": "9"},
        {"approver": CAROL.ref},
        {"source_approval_id": "adv_unknown"},
        {"option_id": None},
        {"at": row.at + timedelta(days=40)},
    ):
        assert waiting.INSIDE in rules(changed(books, "approvals", vote, **values)), values
    gpu = {**books.advances[given].gpu, "names": ["B200"]}
    assert rules(changed(books, "advances", given, gpu=gpu)) == {waiting.INSIDE}


async def test_a_use_that_is_missing_or_double_is_found(books: Books) -> None:
    vote = next(place for place, row in enumerate(books.approvals) if row.source_approval_id)
    assert waiting.ONCE in rules(changed(books, "approvals", vote, source_approval_id=None))
    (given,) = (place for place, one in enumerate(books.advances) if one.state is GrantState.USED)
    assert waiting.ONCE in rules(changed(books, "advances", given, state=GrantState.VOID))


async def test_what_waits_and_holds_something_is_found(books: Books) -> None:
    (place,) = (at for at, row in enumerate(books.requests) if row.state is not RequestState.WAITING)
    assert waiting.NOTHING in rules(changed(books, "requests", place, state=RequestState.WAITING))
    names = {item: getattr(books, item) for item in Books.__dataclass_fields__}
    assert rules(Books(**{**names, "wait_limits": ()})) == {waiting.NOTHING}


async def test_a_reservation_of_a_closed_request_is_found(books: Books) -> None:
    (place,) = (at for at, row in enumerate(books.requests) if row.state is RequestState.WAITING)
    assert "budgets never overshoot" in rules(changed(books, "requests", place, state=RequestState.EXPIRED))
