"""An offer that was gone when it was quoted: the request waits again and is looked at every minute."""

from __future__ import annotations

from decimal import Decimal

from bot.services.requests import quoting, waiting
from ledger.kernel.states import GrantState, RequestState
from tests.support.world import World


async def test_it_waits_again_and_keeps_its_approval_in_advance(w: World) -> None:
    reply = await w.ask(wait=True, start_at="1h", max_price_usd_h=Decimal(5), budget_cap_usd=Decimal(50))
    request_id = str(reply.data["request_id"])
    await w.settle()
    assert (await w.decide(request_id)).ok
    w.clock.advance(3601)
    assert await waiting.look_due(w.ctx) == 1
    assert (await w.view(request_id)).request.state is RequestState.QUOTING
    for cloud in w.clouds.values():
        cloud.reprice("*", Decimal(1000))
    assert await quoting.quote_due(w.ctx) == 1
    view = await w.view(request_id)
    assert view.request.state is RequestState.WAITING
    assert view.limits is not None
    assert view.limits.misses == 1
    assert view.request.due_at is not None
    assert 0 < (view.request.due_at - w.clock.now()).total_seconds() <= 60
    assert [row.state for row in (await w.books()).advances] == [GrantState.OPEN]
    for cloud in w.clouds.values():
        cloud.reprice("*", Decimal("0.001"))
    await w.run(900, 60)
    assert (await w.view(request_id)).request.state is RequestState.APPROVED


async def test_its_start_without_retry_is_one_try(w: World) -> None:
    reply = await w.ask(start_at="1h", max_price_usd_h=Decimal("0.001"))
    request_id = str(reply.data["request_id"])
    await w.settle()
    assert (await w.decide(request_id)).ok
    await w.run(3700, 600)
    assert (await w.view(request_id)).request.state is RequestState.UNAVAILABLE
    assert [row.state for row in (await w.books()).advances] == [GrantState.VOID]
