"""Sessions as people see and end them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.services.billing import metering
from bot.services.runtime.commands import Terminate
from bot.services.sessions import service
from ledger.kernel.states import SessionState
from tests.support.world import ALICE, BOB, DAVE, World, facts


async def test_lists_show_live_sessions_and_waiting_requests(w: World) -> None:
    running = await w.running()
    waiting = str((await w.ask(BOB)).data["request_id"])
    await w.settle()
    everything = await service.listing(w.ctx)
    assert [view.request.id for view in everything.sessions] == [running]
    assert [request.id for request in everything.requests] == [waiting]
    mine = await service.listing(w.ctx, ALICE)
    assert ([view.request.id for view in mine.sessions], mine.requests) == ([running], ())
    view = mine.sessions[0]
    before = metering.cost_now(w.ctx, view, w.clock.now())
    w.clock.advance(1800)
    later = metering.cost_now(w.ctx, view, w.clock.now())
    assert view.instance is not None
    assert abs(later - before - view.instance.price_usd_h / 2) < Decimal("0.001")


async def test_status_finds_a_request_by_its_own_or_its_sessions_ending(w: World) -> None:
    request_id = await w.approved()
    shown = await service.status(w.ctx, request_id[-6:])
    assert shown.session is not None
    assert shown.request.request.id == request_id
    again = await service.status(w.ctx, shown.session.session.id)
    assert again.request.request.id == request_id
    for text, says in (("zz", "at least the last 4"), ("zzzzzz", "`gpu-shopper sessions`"), ("a/b c!", "is not an id")):
        with pytest.raises(LookupError, match=says):
            await service.status(w.ctx, text)


async def test_the_owner_and_approvers_may_end_a_session_and_others_may_not(w: World) -> None:
    first, second = await w.approved(), await w.approved()
    await w.settle()
    for who in (facts(DAVE), facts(ALICE, is_deleted=True), facts(ALICE, known=False), facts(BOB, team_ok=False)):
        refused = await service.terminate(w.ctx, Terminate(first, who))
        assert (refused.ok, refused.code) == (False, "not_yours")
    assert (await w.end(first, ALICE)).code == "terminating"
    assert (await w.end(second, BOB, "needed elsewhere")).code == "terminating"
    twice = await w.end(first, ALICE)
    assert (twice.ok, twice.code) == (False, "already_ending")
    assert "is ending already" in twice.sentence
    await w.run(90, 30)
    assert "has ended" in (await w.end(first, ALICE)).sentence
    view = await w.view(second)
    assert view.session is not None
    assert (view.session.state, view.session.end_reason) == (SessionState.TERMINATED, "needed elsewhere")


async def test_what_is_not_there_cannot_be_ended(w: World) -> None:
    request_id = str((await w.ask()).data["request_id"])
    await w.settle()
    assert (await w.end(request_id)).code == "no_session"
    assert (await w.end("zzzzzz")).code == "unknown_id"


async def test_a_session_that_waits_for_a_new_decision_can_be_ended(w: World) -> None:
    w.tune(failover=False)
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_stale_offer", "vast")
    await w.settle()
    assert (await w.end(request_id)).code == "terminating"
    view = await w.view(request_id)
    assert view.session is not None
    assert (view.request.state, view.session.state) == ("cancelled", SessionState.TERMINATED)
    assert (await w.decide(request_id, BOB)).code == "already_cancelled"


async def test_a_request_that_is_asked_again_and_cancelled_fails_its_session(w: World) -> None:
    w.tune(failover=False)
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_stale_offer", "vast")
    await w.settle()
    assert (await w.cancel(request_id)).code == "cancelled"
    view = await w.view(request_id)
    assert view.session is not None
    assert (view.session.state, view.session.end_code) == (SessionState.FAILED, "cancelled")
    over = await w.end(request_id)
    assert (over.code, "has ended" in over.sentence) == ("already_ending", True)
