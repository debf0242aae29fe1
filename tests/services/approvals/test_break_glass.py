"""Break-glass at work: off by default, small, short, inside the budgets, and nobody who decides is left out."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from decimal import Decimal

import pytest

from bot.rules.reports.digest import day_before
from bot.services.approvals import explanation
from bot.services.approvals.break_glass import BreakGlass, break_glass
from bot.services.reports import digest
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor
from ledger.kernel.states import RequestState
from tests.services.approvals.test_decisions import pending
from tests.support.world import ALICE, BOB, CAROL, CHANNEL, DAVE, World, facts


async def start(w: World, request_id: str, who: Actor = ALICE, reason: str = "demo is down", offer: str = "") -> Reply:
    return await break_glass(w.ctx, BreakGlass(request_id, facts(who), reason, offer or None))


async def test_a_named_person_starts_at_once_for_little_and_loudly(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"), budgets={"global": {"total": Decimal(0)}})
    request_id = await pending(w, hours=Decimal(6), candidates=("vast",))
    long = await pending(w, hours=Decimal(24), candidates=("runpod",))
    assert (await start(w, request_id)).code == "no_break_glass"
    w.tune(break_glass=(ALICE.id,), break_glass_usd=Decimal("0.05"), may_approve_not_pinged=(DAVE.id,))
    assert (await start(w, "zzzzzz")).code == "unknown_id"
    assert (await start(w, request_id, offer="vast:0")).code == "unknown_offer"
    assert (await start(w, request_id)).code == "above_break_glass"
    w.tune(break_glass_usd=Decimal(3))
    assert (await start(w, request_id)).code == "over_budget"
    assert (await w.books()).approvals == ()
    w.tune(budgets={})
    assert (await start(w, request_id)).code == "break_glass"
    assert (await start(w, request_id)).code == "not_waiting"
    assert (await w.decide(request_id, BOB)).code == "already_approved"
    assert (await start(w, long)).code == "break_glass"
    override = (await w.view(long)).override
    assert override is not None
    assert override.state is RequestState.CANCELLED
    books = await w.books()
    for grant in books.grants:
        assert (Decimal(grant.hours), grant.total_cap_usd <= 3) == (Decimal(2), True)
    assert {one.approver for one in books.approvals} == {ALICE.ref}
    found = await explanation.why(w.ctx, request_id)
    assert found.rule.startswith("Break-glass: ")
    assert any("demo is down" in one for one in found.waived)
    await w.settle()
    told = {destination for _, subject, destination, _ in w.board.shown if subject == f"{request_id}/break_glass"}
    assert told == {CHANNEL, BOB.id, CAROL.id, DAVE.id, "channel:operators"}
    day = w.clock.now().date() + timedelta(days=1)
    async with w.ctx.db.read() as tx:
        document = await digest.digest(w.ctx, tx, day_before(date(day.year, day.month, day.day), "UTC"), weekly=False)
    assert len(document.broken_glass) == 2
    await w.run(40, 20)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.deadline is not None
    assert session.deadline - session.created_at < timedelta(hours=2, minutes=5)


async def test_its_hours_are_asked_for_again_when_the_offer_is_gone_before_it_starts(w: World) -> None:
    w.tune(break_glass=(ALICE.id,))
    request_id = await pending(w, hours=Decimal(24))
    before = await w.view(request_id)
    assert (await start(w, request_id)).code == "break_glass"
    w.withdraw(before.options[0])
    await w.settle()
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert before.override is not None
    assert view.override is not None
    assert (view.override.state, view.override.id != before.override.id) == (RequestState.PENDING, True)
    assert (await w.decide(request_id, BOB)).code == "approved"
    assert (await w.view(view.override.id)).request.state is RequestState.APPROVED


@pytest.mark.both_databases
async def test_what_one_person_starts_in_a_day_counts_together_however_fast(w: World) -> None:
    first, second = await pending(w, candidates=("vast",)), await pending(w, candidates=("vast",))
    expected_usd = (await w.view(first)).options[0].expected_usd
    w.tune(break_glass=(ALICE.id,), break_glass_usd=expected_usd * 3 / 2, allow_self_approval=True)
    w.tune(approvers=(ALICE.id, BOB.id), two_approvers_above_usd=Decimal("0.10"))
    named = [BreakGlass(one, facts(ALICE), "demo is down", key=f"rest:{one}") for one in (first, second)]
    replies = await asyncio.gather(*(break_glass(w.ctx, one) for one in named))
    assert sorted(one.code for one in replies) == ["above_break_glass", "break_glass"]
    refused = next(one for one in replies if not one.ok)
    assert "in 24 hours" in refused.sentence
    waiting = first if not replies[0].ok else second
    assert await break_glass(w.ctx, named[replies[0].code == "above_break_glass"]) in replies
    w.tune(break_glass_usd=Decimal(25))
    assert (await w.decide(waiting, ALICE)).code == "first_of_two"
    assert (await start(w, waiting)).code == "already_voted"
