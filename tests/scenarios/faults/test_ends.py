"""Ends: ordered once, repeated until they are proved, and never in the way of anybody's rights."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.services.instances import launch
from bot.services.runtime.commands import Terminate
from bot.services.sessions import service
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.queries.session_costs import accrued_of_session
from tests.support.matrix import on_clouds
from tests.support.proxy_provider import Gate, gated
from tests.support.world import ALICE, World, facts


async def end(w: World, request_id: str) -> None:
    reply = await service.terminate(w.ctx, Terminate(request_id, facts(ALICE)))
    assert reply.code == "terminating", reply


async def states(w: World, request_id: str) -> tuple[SessionState, InstanceState]:
    view = await w.view(request_id)
    assert view.session is not None
    return view.session.state, view.instances[-1].state


@on_clouds(terminate=True)
async def test_a_refused_destroy_is_ordered_again(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,))
    w.arm("destroy_429", cloud, times=2)
    await end(w, request_id)
    await w.settle()
    assert len(w.alive()) == 1
    await w.run(180, 10)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)
    assert w.alive() == []


@on_clouds(terminate=True)
async def test_a_destroy_that_is_taken_and_not_done_is_ordered_until_it_is_and_pages(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,))
    w.arm("destroy_not_done", cloud, times=None)
    await end(w, request_id)
    await w.run(540, 30)
    assert await states(w, request_id) == (SessionState.TERMINATING, InstanceState.TERMINATING)
    assert "operator.page" not in w.board.kinds()
    await w.run(120, 30)
    row = (await w.view(request_id)).instances[0]
    assert "operator.page" in w.board.kinds(row.id)
    pages = [note for note in (await w.books()).notifications if note.kind == "operator.page"]
    assert [str(note.body["text"]).count("still lists it") for note in pages] == [1]
    w.engine.faults.disarm()
    await w.run(180, 30)
    view = await w.view(request_id)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)
    # Taken orders that were not done do not end the bill, so they do not end the booking.
    assert view.session is not None
    async with w.ctx.db.read() as tx:
        booked = await accrued_of_session(tx, view.session.id)
    assert abs(booked - w.bill()) <= max(w.bill() / 100, Decimal("0.01"))


async def test_a_lost_answer_to_a_destroy_changes_nothing(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    w.arm("destroy_lost_reply", "vast", times=1)
    await end(w, request_id)
    await w.run(150, 15)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)


async def test_an_end_whose_proof_takes_hours_is_not_booked_on(w: World) -> None:
    request_id = await w.running(candidates=("runpod",))
    await w.run(1800, 300)
    w.arm("list_503", "runpod", times=None)
    await end(w, request_id)
    await w.run(4 * 3600, 900)
    assert await states(w, request_id) == (SessionState.TERMINATING, InstanceState.TERMINATING)
    w.engine.faults.disarm()
    await w.run(180, 30)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)
    assert w.bill() < Decimal("0.5")


@pytest.mark.parametrize("answer", ["create_stale_offer", "create_auth", None])
async def test_an_end_during_the_create_ends_what_it_makes_and_asks_nobody(w: World, answer: str | None) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.wrap("vast", gated)
    gate = w.ctx.providers["vast"]
    assert isinstance(gate, Gate)
    sending = asyncio.create_task(launch.send_due(w.ctx))
    await gate.entered.wait()
    await end(w, request_id)
    if answer:
        w.arm(answer, "vast")
    gate.go.set()
    await sending
    await w.run(150, 15)
    view = await w.view(request_id)
    assert view.session is not None
    assert (view.session.state, view.session.end_code) == (SessionState.TERMINATED, "asked")
    assert view.request.state is RequestState.APPROVED
    assert len(w.engine.creates) == 1
    assert w.alive() == []
    assert [g.state for g in (await w.books()).grants] == [GrantState.VOID if answer else GrantState.USED]


@pytest.mark.both_databases
async def test_an_end_before_the_send_sends_nothing(w: World) -> None:
    request_id = await w.approved()
    await end(w, request_id)
    await w.settle()
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.REJECTED)
    assert w.engine.creates == []


async def test_an_end_while_the_outcome_gave_no_answer_ends_what_is_found(w: World) -> None:
    request_id = await w.approved(candidates=("runpod",))
    w.arm("create_lands_late", "runpod", after_s=100)
    await w.settle()
    await end(w, request_id)
    await w.run(60, 20)
    assert await states(w, request_id) == (SessionState.TERMINATING, InstanceState.UNKNOWN)
    await w.run(180, 20)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)
    assert w.alive() == []


async def test_an_end_while_the_outcome_stays_unclear_ends_with_a_tombstone(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_lost_request", "vast")
    await w.settle()
    await end(w, request_id)
    await w.run(330, 30)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.TOMBSTONE)
    assert (await w.view(request_id)).request.state is RequestState.APPROVED


async def test_the_end_comes_while_nobody_can_be_told_and_they_hear_of_it_later(w: World) -> None:
    request_id = await w.running()
    w.board.down = True
    shown = len(w.board.shown)
    await w.run(2 * 3600, 1200)
    await w.run(180, 30)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)
    assert len(w.board.shown) == shown
    w.board.down = False
    await w.run(360, 60)
    view = await w.view(request_id)
    assert view.session is not None
    assert {"session.ending", "session.ended"} <= set(w.board.kinds(view.session.id))


async def test_the_end_is_enforced_by_a_process_that_slept_through_it_and_announced_before(w: World) -> None:
    request_id = await w.running()
    w.clock.advance(timedelta(hours=5))
    await w.tick()
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert "session.ending" in w.board.kinds(view.session.id)
    await w.run(10, 5)
    assert (await states(w, request_id))[0] is SessionState.TERMINATING
    await w.run(90, 15)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)


async def test_an_instance_of_an_account_that_is_gone_is_never_called_ended(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    there = w.ctx.providers
    w.use({name: provider for name, provider in there.items() if name != "vast"})
    await end(w, request_id)
    await w.run(720, 60)
    assert await states(w, request_id) == (SessionState.TERMINATING, InstanceState.TERMINATING)
    pages = [note for note in (await w.books()).notifications if note.kind == "operator.page"]
    assert ["none of its keys is set up here" in str(note.body["text"]) for note in pages] == [True]
    w.use(there)
    await w.run(180, 30)
    assert await states(w, request_id) == (SessionState.TERMINATED, InstanceState.GONE)
