"""Nothing is taken away before one attempt to tell its people, and nothing is kept for longer than that takes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.services.instances import termination
from bot.services.outbox import dispatch
from bot.services.sessions import expiration
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import SessionState
from ledger.models import Session
from tests.services.checkpoints.test_verification import looks_at, near_its_end
from tests.support.clock import SteppedClock
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, BOB, CHANNEL, World, checked_world


def told_who_ended(w: World) -> list[str]:
    """Where it was shown who ended a session."""
    return [to for _, of, to, _ in w.board.shown if of.endswith("/ended-by")]


async def test_an_end_by_somebody_else_waits_for_the_gate_and_its_owner_is_told_before_each_step(w: World) -> None:
    async with served(Shelf()) as stores:
        looks_at(w, stores)
        request_id = await w.running(candidates=("vast",), checkpoint="s3://bucket/run")
        ordered = await w.end(request_id, BOB, "needed elsewhere")
        assert (ordered.code, "end it once more" in ordered.sentence) == ("terminating", True)
        await termination.terminate_due(w.ctx)
        row = (await w.books()).instances[0]
        assert (row.checkpoint_step, len(w.alive())) == (CheckpointStep.SAVING, 1)
        await dispatch.deliver_due(w.ctx, w.board)
        assert told_who_ended(w) == [ALICE.id]
        # Who orders it again knows that nothing is saved; its owner reads that too, before it goes.
        assert (await w.end(request_id, BOB)).code == "released"
        await termination.terminate_due(w.ctx)
        assert len(w.alive()) == 1
        await dispatch.deliver_due(w.ctx, w.board)
        assert told_who_ended(w) == [ALICE.id] * 2
        await termination.terminate_due(w.ctx)
        assert w.alive() == []


@pytest.mark.parametrize("tries", ["shown", "failed", "none"])
async def test_an_end_by_somebody_else_waits_for_one_attempt_and_at_most_ten_seconds(
    sqlite_db: Database, clock: SteppedClock, tries: str
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        request_id = await w.running(candidates=("vast",))
        await w.end(request_id, BOB)
        await termination.terminate_due(w.ctx)
        assert len(w.alive()) == 1
        w.board.down = tries == "failed"
        if tries == "none":
            w.clock.advance(10)
        else:
            await dispatch.deliver_due(w.ctx, w.board)
        await termination.terminate_due(w.ctx)
        assert w.alive() == []
        assert told_who_ended(w) == ([ALICE.id] if tries == "shown" else [])


async def test_an_owner_whom_nobody_can_write_to_is_told_where_it_was_asked_for(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        request_id = await w.running(Actor(ActorKind.OPERATOR, "ada"), candidates=("vast",))
        await w.end(request_id, BOB)
        await dispatch.deliver_due(w.ctx, w.board)
        assert told_who_ended(w) == [CHANNEL]


async def test_an_end_that_was_slept_through_waits_for_its_warning_to_be_tried(w: World) -> None:
    await w.running(candidates=("vast",))
    row = (await w.books()).sessions[0]
    assert row.deadline is not None
    w.clock.advance(row.deadline - w.clock.now() + timedelta(minutes=10))
    await expiration.deadlines_due(w.ctx)  # It warns now, and nothing is sent: there is a backlog.
    w.clock.advance(6)
    await expiration.deadlines_due(w.ctx)
    await termination.terminate_due(w.ctx)
    async with w.ctx.db.read() as tx:
        ended = await tx.get_one(Session, row.id)
    assert (ended.state, len(w.alive())) == (SessionState.TERMINATING, 1)
    await dispatch.deliver_due(w.ctx, w.board)
    assert "session.ending" in w.board.kinds(row.id)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []


async def test_what_the_gate_gives_up_is_told_before_it_goes(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(checkpoint_unverified="destroy")
        async with near_its_end(w, "tensordock"):
            await w.settle()
            w.clock.advance(601)
            await termination.terminate_due(w.ctx)
            row = (await w.books()).instances[0]
            assert (row.checkpoint_step, len(w.alive())) == (CheckpointStep.DESTROYED, 1)
            await dispatch.deliver_due(w.ctx, w.board)
            await termination.terminate_due(w.ctx)
            assert w.alive() == []
