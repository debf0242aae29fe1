"""The approved end: counted from the send, announced once, enforced; and the approved amount ends a session too."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from bot.services import deadlines, lifecycle, requests
from bot.services.commands import Provision
from ledger.claims import wake
from ledger.models import Session
from ledger.states import SessionState
from ledger.values import Actor, ActorKind, GpuConstraint, JobRequest
from tests.support.world import BOB, World


async def session(w: World) -> Session:
    return (await w.books()).sessions[0]


async def test_the_approved_hours_count_from_the_send(w: World) -> None:
    request_id = await w.approved()
    w.arm("create_lands_late", after_s=120)
    w.clock.advance(60)
    await w.settle()
    sent_at = (await w.view(request_id)).instances[0].sent_at
    await w.run(200, 40)
    row = await session(w)
    assert row.state is SessionState.RUNNING
    assert sent_at is not None
    assert row.deadline == sent_at + timedelta(hours=2)


async def test_the_owner_is_told_once_before_the_end_which_is_then_enforced(w: World) -> None:
    await w.running()
    row = await session(w)
    assert row.deadline is not None
    w.clock.advance(row.deadline - w.clock.now() - timedelta(seconds=601))
    await w.settle()
    assert "session.ending" not in w.board.kinds(row.id)
    w.clock.advance(1)
    await w.settle()
    for _ in range(3):
        w.clock.advance(150)
        await w.settle()
    assert w.board.kinds(row.id).count("session.ending") == 1
    assert (await session(w)).state is SessionState.RUNNING
    w.clock.advance(150)
    await w.tick()
    row = await session(w)
    assert (row.state, row.end_code) == (SessionState.TERMINATING, "reservation_over")
    assert row.end_reason == "The approved 2 hours are over."
    await w.run(90, 30)
    assert (await session(w)).state is SessionState.TERMINATED


async def test_a_limit_below_the_cost_of_the_hours_ends_the_session_when_it_is_used_up(w: World) -> None:
    request_id = str((await w.ask(candidates=("runpod",))).data["request_id"])
    await w.settle()
    await w.decide(request_id, cap_usd=Decimal("0.20"))
    await w.settle()
    row = await session(w)
    assert row.deadline is not None
    assert row.deadline < w.clock.now() + timedelta(hours=1)
    await w.run((row.deadline - w.clock.now()).total_seconds(), 600)
    await w.run(120, 30)
    row = await session(w)
    assert row.end_reason == "The approved amount of $0.20 is used up."
    assert row.state is SessionState.TERMINATED
    assert w.bill() <= Decimal("0.201")


async def test_an_owner_without_a_slack_account_is_not_announced_to_and_ended_all_the_same(w: World) -> None:
    consumer = Actor(ActorKind.CONSUMER, "key1")
    job = JobRequest(gpu=GpuConstraint(("RTX4090",), 1, 1), hours=Decimal(2))
    request_id = str((await requests.submit(w.ctx, Provision("k", consumer, "C0GPU", job))).data["request_id"])
    await w.settle()
    await w.decide(request_id, BOB)
    await w.settle()
    await w.run(2 * 3600 + 300, 1200)
    row = await session(w)
    assert row.end_code == "reservation_over"
    assert w.board.kinds(row.id) == []


async def test_a_session_without_an_end_is_left_alone(w: World) -> None:
    await w.approved()
    w.arm("create_lost_reply")
    await lifecycle.send_due(w.ctx)
    row = await session(w)
    async with w.ctx.db.write() as tx:
        await wake(tx, Session, row.id, w.clock.now())
    assert await deadlines.deadlines_due(w.ctx) == 1
    row = await session(w)
    assert (row.state, row.due_at) == (SessionState.PROVISIONING, None)
