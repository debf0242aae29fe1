"""The audit of graces: silent on a right one, and loud about an end that was too early or a wait that cost too much."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.services.audit.invariants import graces
from ledger.queries.audit import Books
from tests.support.world import World


def rules(w: World, books: Books) -> set[str]:
    return {one.rule for one in graces.check(books, w.clock.now())}


async def test_a_grace_that_costs_too_much_and_a_second_one_are_found(w: World) -> None:
    await w.running(candidates=("vast",))
    row = (await w.books()).instances[0]
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "offline")
    await w.run(60, 30)
    books = await w.books()
    assert rules(w, books) == set()
    assert rules(w, replace(books, graces=books.graces * 2)) == {graces.ONE}
    books.graces[0].spent_usd = Decimal("1.01")
    assert rules(w, books) == {graces.COST}


@pytest.mark.slow
async def test_an_end_that_was_not_judged_or_was_too_early_is_found(w: World) -> None:
    w.tune(grace_usd=Decimal(0), replacements=0)
    await w.running(candidates=("vast",))
    row = (await w.books()).instances[0]
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "expire")
    await w.run(900, 60)
    books = await w.books()
    assert books.instances[0].outcome_code == "stopped_there"
    assert rules(w, books) == set()
    (judged,) = [event for event in books.events if event.kind == "instance.not_kept"]
    assert rules(w, replace(books, events=tuple(one for one in books.events if one is not judged))) == {graces.KEPT}
    judged.data = {**judged.data, "limit_usd": "1"}
    assert rules(w, books) == {graces.KEPT}
    judged.data = {**judged.data, "at_risk": "nothing"}
    assert rules(w, books) == set()
