"""The audit of budgets: silent while a cloud does not take an order to end, and loud where nobody ordered an end."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from bot.services.audit.invariants import money
from bot.services.billing import metering
from ledger.kernel.states import InstanceState
from ledger.queries.audit import Books
from tests.services.audit.test_waiting_invariants import changed
from tests.support.world import World

OVERSHOOT = {"budgets never overshoot"}


def rules(rows: Books) -> set[str]:
    return {one.rule for one in money.check(rows, {})}


async def test_an_hour_that_completes_while_a_cloud_takes_no_order_to_end_is_no_overshoot(bare: World) -> None:
    await bare.running(candidates=("vast",), hours=Decimal("0.5"))
    bare.clock.advance(9000)  # No job runs, so nobody orders its end.
    assert await metering.accrue_due(bare.ctx)
    books = await bare.books()
    (row,), (session,) = books.instances, books.sessions
    assert (row.state, row.billing_until) == (InstanceState.LIVE, None)
    assert rules(books) == OVERSHOOT
    ending = changed(books, "instances", 0, state=InstanceState.TERMINATING)
    assert rules(ending) == set()
    # More was booked than the time costs that its end takes.
    assert session.deadline is not None
    assert rules(changed(ending, "sessions", 0, deadline=session.deadline + timedelta(hours=2))) == OVERSHOOT
