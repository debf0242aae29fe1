"""Requests that wait for an offer: what wakes them, what ends them, and that they hold and buy nothing meanwhile."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from bot.services.requests import waiting
from ledger.kernel.states import RequestState
from tests.support.world import BOB, World

CHEAP = Decimal("0.01")
DEAR = Decimal(100)


async def waits(w: World, **changes: Any) -> str:
    """A request that waits for a price that nobody asks."""
    reply = await w.ask(**{"wait": True, "max_price_usd_h": CHEAP, "wait_until": "6h", **changes})
    assert reply.ok, reply
    assert " waits for 1× RTX4090 at $0.010/h or less until " in reply.sentence
    await w.settle()
    return str(reply.data["request_id"])


async def state_of(w: World, request_id: str) -> RequestState:
    return (await w.view(request_id)).request.state


async def test_it_waits_buys_nothing_and_expires_at_its_time(w: World) -> None:
    request_id = await waits(w)
    assert await state_of(w, request_id) is RequestState.WAITING
    await w.run(5 * 3600, 600)
    assert await state_of(w, request_id) is RequestState.WAITING
    assert not w.instances()
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.EXPIRED
    assert view.request.outcome == "No offer fit its limits in time."
    assert "request.result" in w.board.kinds(request_id)


async def test_an_offer_at_its_price_is_shown_and_asked_as_usual(w: World) -> None:
    reply = await w.ask(wait=True, max_price_usd_h=DEAR)
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert view.request.state is RequestState.PENDING
    assert view.options
    assert all(option.price_usd_h <= DEAR for option in view.options)


async def test_it_starts_at_its_time_and_not_before(w: World) -> None:
    reply = await w.ask(start_at="2h")
    request_id = str(reply.data["request_id"])
    assert " waits for 1× RTX4090 from " in reply.sentence
    await w.settle()
    await w.run(3600, 600)
    assert await state_of(w, request_id) is RequestState.WAITING
    await w.run(3700, 600)
    assert await state_of(w, request_id) is RequestState.PENDING


async def test_a_time_that_cannot_be_waited_for_is_refused(w: World) -> None:
    for changes, said in (
        ({"wait": True, "wait_until": "900h"}, "A request waits for 168 hours at most. Name an earlier moment."),
        ({"start_at": "2020-01-01"}, "at=2020-01-01 has passed. Name a later moment, such as at=20:00."),
        ({"wait": True, "wait_until": "2020-01-01"}, "until=2020-01-01 is before its start."),
    ):
        reply = await w.ask(**changes)
        assert not reply.ok
        assert reply.code == "bad_wait"
        assert said in reply.sentence


async def test_its_requester_cancels_and_an_approver_rejects_it(w: World) -> None:
    mine, other = await waits(w), await waits(w)
    assert (await w.cancel(mine)).ok
    assert (await w.decide(other, BOB, "reject", reason="too dear")).ok
    assert await state_of(w, mine) is RequestState.CANCELLED
    assert await state_of(w, other) is RequestState.REJECTED


async def test_one_listing_a_look_serves_all_that_wait(w: World) -> None:
    async def calls() -> int:
        await w.settle()
        w.clock.advance(200)
        before = len(w.engine.calls)
        assert await waiting.look_due(w.ctx)
        return len(w.engine.calls) - before

    await waits(w)
    one = await calls()
    for number in range(4):
        await waits(w, hours=Decimal(2 + number), disk_gb=60 + number)
    assert await calls() == one > 0


async def test_a_preapproved_request_launches_inside_its_cover(w: World) -> None:
    reply = await w.ask(wait=True, max_price_usd_h=DEAR, budget_cap_usd=Decimal(50), start_at="1h")
    request_id = str(reply.data["request_id"])
    await w.settle()
    said = await w.decide(request_id)
    assert said.code == "in_advance", said
    assert said.sentence == "You approved it in advance: at most $100.00/h and $50.00 in all."
    assert not w.instances()
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    (vote,) = view.approvals
    assert vote.approver == BOB.ref
    assert vote.source_approval_id is not None
    assert vote.total_cap_usd is not None
    assert vote.total_cap_usd <= 50
    await w.run(300, 60)
    assert len(w.instances()) == 1
