"""The audit of sets of machines: silent on a good set, and loud about each wrong that it knows."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.services.audit.invariants import node_sets
from ledger.kernel.states import InstanceState, SessionState
from ledger.queries.audit import Books
from tests.services.audit.test_waiting_invariants import changed
from tests.support.world import World


@pytest.fixture
async def books(w: World) -> Books:
    """A set of two machines that runs."""
    await w.running(candidates=("lambda",), nodes=2)
    found = await w.books()
    assert node_sets.check(found) == list(node_sets.settled(found)) == []
    return found


def rules(rows: Books) -> set[str]:
    return {one.rule for one in (*node_sets.check(rows), *node_sets.settled(rows))}


async def test_each_broken_rule_is_found(books: Books) -> None:
    row, grant, approval = books.instances[0], books.grants[0], books.approvals[0]
    wrong: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("sessions", {"nodes": 1}, node_sets.APPROVED),
        ("grants", {"total_cap_usd": grant.total_cap_usd + 1}, node_sets.APPROVED),
        ("grants", {"price_cap_usd_h": grant.price_cap_usd_h + 1}, node_sets.APPROVED),
        ("approvals", {"total_cap_usd": (approval.total_cap_usd or Decimal(0)) / 2}, node_sets.APPROVED),
        ("instances", {"node_rank": 1 - (row.node_rank or 0)}, node_sets.WHOLE),
        ("instances", {"node_rank": None}, node_sets.WHOLE),
        ("instances", {"offer": {**row.offer, "region": "elsewhere"}}, node_sets.WHOLE),
        ("instances", {"reachable_at": None}, node_sets.WHOLE),
        ("instances", {"state": InstanceState.GONE}, node_sets.WHOLE),
    )
    for table, values, rule in wrong:
        assert rules(changed(books, table, 0, **values)) == {rule}, (table, values)


async def test_a_set_that_ends_may_lack_machines(books: Books) -> None:
    gone = changed(books, "instances", 0, state=InstanceState.GONE)
    assert rules(changed(gone, "sessions", 0, state=SessionState.TERMINATING)) == set()


async def test_approvals_without_a_session_of_theirs_are_left_alone(books: Books) -> None:
    assert rules(replace(books, sessions=(), instances=())) == set()
