"""The approved end: counted from the send, announced once, enforced; and the approved amount ends a session too."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.services.instances import launch
from bot.services.requests import submit
from bot.services.runtime.commands import Provision
from bot.services.sessions import expiration
from ledger.core.claims import wake
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import SessionState
from ledger.models import Session
from providers.gpus.constraint import GpuConstraint
from tests.support.world import ALICE, BOB, World


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


async def until(w: World, before: timedelta) -> Session:
    """Let time pass to so long before the session's end, and tick there."""
    row = await session(w)
    assert row.deadline is not None
    w.clock.advance(row.deadline - before - w.clock.now())
    await w.settle()
    return await session(w)


async def test_one_message_is_updated_at_each_warning_and_the_last_is_a_call_of_its_own(w: World) -> None:
    await w.running()
    row = await until(w, timedelta(seconds=3601))
    assert "session.ending" not in w.board.kinds(row.id)
    for number, minutes in enumerate((60, 30, 10, 2), 1):
        await until(w, timedelta(minutes=minutes))
        shown = [entry for entry in w.board.shown if entry[0] == "session.ending"]
        assert [(entry[2], entry[3]) for entry in shown] == [(ALICE.id, n) for n in range(1, number + 1)]
    assert len({entry[1] for entry in shown}) == 1  # One message.
    assert w.board.kinds(row.id).count("session.final_warning") == 1
    row = await until(w, timedelta(seconds=1))
    assert row.state is SessionState.RUNNING
    row = await until(w, timedelta(0))
    assert (row.state, row.end_code) == (SessionState.TERMINATING, "reservation_over")
    assert row.end_reason == "The approved 2 hours have ended."
    await w.run(90, 30)
    assert (await session(w)).state is SessionState.TERMINATED


async def test_warnings_that_were_slept_through_are_one_message_and_the_end_waits_for_none(w: World) -> None:
    await w.running()
    row = await until(w, timedelta(minutes=1))
    assert w.board.kinds(row.id).count("session.ending") == 1
    assert (await until(w, timedelta(0))).state is SessionState.TERMINATING


async def test_an_end_that_nobody_was_told_of_is_announced_before_the_act(w: World) -> None:
    w.tune(max_hours=Decimal(2))
    await w.running()
    row = await until(w, timedelta(minutes=-1))
    assert (row.state, w.board.kinds(row.id).count("session.ending")) == (SessionState.RUNNING, 1)
    w.clock.advance(5)
    await w.settle()
    row = await session(w)
    assert (row.state, row.end_code) == (SessionState.TERMINATING, "hours_cap")
    assert row.end_reason.endswith("More than 2 hours needs an override.")
    await w.run(120, 30)


async def test_1047_a_messenger_that_is_down_keeps_nothing_alive_and_ends_nothing_early(w: World) -> None:
    await w.running()
    w.board.down = True
    for minutes in (60, 2):
        assert (await until(w, timedelta(minutes=minutes))).state is SessionState.RUNNING
    assert (await until(w, timedelta(seconds=1))).state is SessionState.RUNNING
    assert (await until(w, timedelta(0))).state is SessionState.TERMINATING
    await w.run(90, 30)
    assert ((await session(w)).state, w.alive()) == (SessionState.TERMINATED, [])


async def test_when_the_owner_cannot_be_reached_the_fallback_contact_is_told_at_once(w: World) -> None:
    w.tune(fallback_contacts=("UFALLBACK",))
    await w.running()
    w.board.unreachable.add(ALICE.id)
    await until(w, timedelta(minutes=60))
    told = [entry[2] for entry in w.board.shown if entry[0] == "session.ending"]
    assert told == ["UFALLBACK"]
    for minutes in (30, 10, 2):
        await until(w, timedelta(minutes=minutes))
        w.clock.advance(30)
        await w.settle()
    versions = [entry[3] for entry in w.board.shown if entry[:3:2] == ("session.ending", "UFALLBACK")]
    assert versions == [1, 2, 3, 4]  # One message, brought up to date; told once.


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
    assert row.end_code == "budget_cap"
    assert row.state is SessionState.TERMINATED
    assert w.bill() <= Decimal("0.201")


async def test_the_end_of_an_owner_without_a_slack_account_is_told_where_it_was_asked_for(w: World) -> None:
    consumer = Actor(ActorKind.CONSUMER, "key1")
    job = JobRequest(gpu=GpuConstraint(("RTX4090",), 1, 1), hours=Decimal(2))
    request_id = str((await submit.submit(w.ctx, Provision("k", consumer, "C0GPU", job))).data["request_id"])
    await w.settle()
    await w.decide(request_id, BOB)
    await w.settle()
    await w.run(2 * 3600 + 300, 1200)
    row = await session(w)
    assert row.end_code == "reservation_over"
    # Nobody can be told directly, so the place where it was asked for is told.
    assert {entry[2] for entry in w.board.shown if entry[1].startswith(row.id)} == {"C0GPU"}


async def test_a_session_without_an_end_is_left_alone(w: World) -> None:
    await w.approved()
    w.arm("create_lost_reply")
    await launch.send_due(w.ctx)
    row = await session(w)
    async with w.ctx.db.write() as tx:
        await wake(tx, Session, row.id, w.clock.now())
    assert await expiration.deadlines_due(w.ctx) == 1
    row = await session(w)
    assert (row.state, row.due_at) == (SessionState.PROVISIONING, None)
