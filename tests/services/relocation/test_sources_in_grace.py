"""A source that stops working while its run moves, and is kept in grace: the run never waits for it on two machines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.services.runtime.commands import AnswerGrace, Reply
from bot.services.sessions import grace_answers
from ledger.kernel.end_reason import EndReason
from ledger.kernel.ids import short_id
from ledger.kernel.states import SessionState
from ledger.kernel.steps.grace import GraceChoice
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import GraceRow
from tests.services.relocation.run import SOURCE, Run, running
from tests.support.world import ALICE, World, facts

_M = MigrationStep


async def disturb(run: Run, what: str) -> None:
    """Something happens to the source at its cloud."""
    run.w.clouds["vast"].disturb(str((await run.row(SOURCE)).ref), what)


async def loses_contact(run: Run) -> str:
    """The source's host loses contact while its job works. Return the key of its agent."""
    key = next(key for key, agent in run.w.engine.nodes.running.items() if agent is run.first)
    await disturb(run, "offline")
    return key


async def returns(run: Run, key: str) -> None:
    """Its host is back. Its job has trained all the while."""
    await disturb(run, "online")
    run.first.next_at = run.w.clock.now()
    run.w.engine.nodes.running[key] = run.first


async def give_up(run: Run) -> Reply:
    """Its owner gives the source up."""
    return await grace_answers.answer(run.w.ctx, AnswerGrace(run.request_id, facts(ALICE), GraceChoice.GIVE_UP, None))


async def source_grace(run: Run) -> GraceRow:
    return (await run.w.books()).graces[0]


async def test_a_source_that_is_given_up_leaves_its_run_to_the_target(w: World) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.READY)
        await disturb(run, "offline")
        for _ in range(6):
            await run.tick()
        reply = await give_up(run)
        there = short_id(run.target_id)
        assert reply.code == "terminating"
        assert f"Its run continues as {there}, from its last verified save." in reply.sentence
        row = await run.over()
        source, target = await run.sessions()
        assert target is not None
        assert (source.state, source.end_code) == (SessionState.TERMINATED, EndReason.GIVEN_UP)
        assert (row.step, target.state, len(w.alive())) == (_M.DONE, SessionState.RUNNING, 1), row.note
        assert run.second.job == "running"


@pytest.mark.slow
async def test_an_end_that_a_person_asks_for_ends_the_run_on_both_machines(w: World) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.READY)
        assert (await w.end(run.request_id)).ok
        row = await run.over()
        assert (row.step, w.alive()) == (_M.FAILED, []), row.note


@pytest.mark.slow
@pytest.mark.parametrize("what", ["offline", "expire"])
async def test_a_source_in_grace_leaves_its_run_to_a_ready_target(w: World, what: str) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.READY)
        last, at = run.first.step, w.clock.now()
        await disturb(run, what)
        row = await run.until(_M.ADVANCED)
        assert row.taken_over_at is not None
        assert row.taken_over_at - at < timedelta(seconds=w.ctx.timing.broken_grace_s + 120)
        # The disk of the source is kept while it may hold later work than the target has reached.
        assert (await source_grace(run)).ended_at is None
        assert len(w.alive()) == 2
        row = await run.over()
        source, target = await run.sessions()
        assert target is not None
        assert (row.step, source.end_code, target.state) == (_M.DONE, EndReason.MIGRATED, SessionState.RUNNING)
        assert run.second.step >= last
        assert any("doesn't work. It is kept" in text for text in await run.texts())
        assert not any("paused there" in text for text in await run.texts())


@pytest.mark.slow
async def test_a_source_that_returns_after_the_target_took_over_does_not_train_again(w: World) -> None:
    async with running(w, hours=6) as run:
        run.refuses.add("train")  # The target takes its time.
        await run.approved()
        await run.until(_M.READY)
        key = await loses_contact(run)
        await run.until(_M.PRESENT, _M.STARTED)
        await returns(run, key)
        for _ in range(3):
            await run.tick()
        assert run.first.job == "paused"
        assert (await source_grace(run)).outcome == "recovered"
        replies = [str(note.body.get("text")) for note in (await w.books()).notifications if note.kind == "reply"]
        (text,) = [text for text in replies if "works again" in text]
        assert f"Its run continues as {short_id(run.target_id)}, so its job is paused." in text
        run.refuses.clear()
        row = await run.over()
        assert (row.step, len(w.alive()), run.second.job) == (_M.DONE, 1, "running"), row.note


@pytest.mark.slow
async def test_no_target_trains_before_its_source_had_time_to_come_back(w: World) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.READY)
        key = await loses_contact(run)
        for _ in range(6):
            await run.tick()
        await returns(run, key)
        row = await run.over()
        assert row.step is _M.DONE
        assert row.taken_over_at is None
