"""The main job: a request becomes offers, an approval, an instance, and nothing at the end."""

from __future__ import annotations

from decimal import Decimal

from bot.services.runtime.commands import Terminate
from bot.services.sessions import service
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.queries.session_costs import accrued_of_session
from tests.support.world import ALICE, World, facts


async def test_a_request_is_quoted_approved_run_and_ended(w: World) -> None:
    reply = await w.ask()
    assert reply.ok, reply
    request_id = str(reply.data["request_id"])
    await w.settle()
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert len(view.options) == 5
    assert [o.rank for o in view.options] == [1, 2, 3, 4, 5]
    assert sorted(w.board.kinds(request_id)) == ["request.details", "request.message"]
    assert w.alive() == []

    decided = await w.decide(request_id)
    assert (decided.ok, decided.code) == (True, "approved")
    await w.settle()
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    assert view.instances[0].state is InstanceState.LIVE
    assert w.alive() == [view.instances[0].name]

    await w.run(300)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert view.instances[0].reachable_at is not None
    assert "session.ready" in w.board.kinds(view.session.id)

    ended = await service.terminate(w.ctx, Terminate(view.session.id, facts(ALICE)))
    assert ended.code == "terminating"
    await w.run(180)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.TERMINATED
    assert view.instances[0].state is InstanceState.GONE
    assert w.alive() == []
    async with w.ctx.db.read() as tx:
        booked = await accrued_of_session(tx, view.session.id)
    assert abs(booked - w.bill()) <= max(w.bill() * Decimal("0.01"), Decimal("0.01")), (booked, w.bill())
