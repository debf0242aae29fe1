"""The result of a job: recorded once, when its command or its session ends, and readable after its machine is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.api.views import session_out
from bot.rules.access.sight import Sight
from bot.rules.nodes.job_state import JobStatus
from bot.services.nodes.job_results import job_status_of
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.job_state import JobState
from ledger.kernel.states import SessionState
from ledger.models import Event, Session
from ledger.queries.nodes import amend_node
from tests.services.webhooks.test_subscriptions import ATLAS, hook, principal, program, pump, told
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import SteppedClock
from tests.support.world import ALICE, World, checked_world

RUN = "python train.py --config configs/small.yaml"


@pytest.fixture
async def one(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service on SQLite only, for what the database has no part in."""
    async with checked_world(sqlite_db, clock) as built:
        yield built


def startup(run: str, **failed: int) -> dict[str, Any]:
    """What an agent reports of its start-up; a step that failed has an exit code."""
    first = [{"name": name, "state": "failed", "exit_code": code} for name, code in failed.items()]
    return {"steps": [*first, {"name": "run", "state": run}]}


async def session(w: World) -> Session:
    return (await w.books()).sessions[0]


async def shown(w: World) -> JobStatus:
    """The job of the only session, as every surface shows it."""
    found = job_status_of(await w.session((await session(w)).id))
    assert found is not None
    return found


async def results(w: World) -> list[Event]:
    return [event for event in (await w.books()).events if event.kind == "job.ended"]


async def begun(w: World, actor: Actor = ALICE) -> str:
    """A session with a job whose agent has reported that its command started."""
    request_id = await w.running(actor, candidates=("vast",), run=RUN)
    await pass_time(w, 1)
    agent(w).machine = startup("done")
    await pass_time(w, 61)
    assert (await shown(w)).state is JobState.RUNNING
    return request_id


async def test_a_job_is_followed_to_its_exit_code_which_stays_after_the_machine(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), run=RUN)
        await pass_time(w, 1)
        assert (await shown(w)).state is JobState.RUNNING  # It reports a step, so it runs.
        agent(w).machine = startup("waiting")
        await pass_time(w, 61)
        assert (await shown(w)).state is JobState.QUEUED
        agent(w).machine = startup("done")
        await pass_time(w, 61)
        agent(w).job = "saving"
        await pass_time(w, 61)
        assert (await shown(w)).state is JobState.SAVING
        agent(w).job, agent(w).job_exit_code = "failed", 3
        await pass_time(w, 61)
        row = await session(w)
        assert (row.state, row.job_state, row.job_exit_code) == (SessionState.RUNNING, JobState.FAILED, 3)
        await pass_time(w, 200)
        await w.run(120, 30)
        row = await session(w)
        assert (row.state, w.alive()) == (SessionState.TERMINATED, [])
        assert await shown(w) == JobStatus(JobState.FAILED, 3)
        (event,) = await results(w)
        assert (event.subject, event.after, event.data) == (row.id, "failed", {"exit_code": 3})
        out = session_out(w.ctx, await w.session(row.id), w.clock.now(), Sight.OWN).job
        assert out is not None
        assert (out.state, out.exit_code, out.line) == (JobState.FAILED, 3, "failed (exit code 3)")


async def test_attempts_are_shown_while_it_runs_and_after_it_ended(one: World) -> None:
    w = one
    async with listening(w):
        await w.running(candidates=("vast",), run=RUN, attempts=3, retry_codes=(75,))
        await pass_time(w, 1)
        agent(w).machine, agent(w).job_attempt = startup("done"), 2
        await pass_time(w, 61)
        assert (await shown(w)).line == "running (attempt 2 of 3)"
        agent(w).job, agent(w).job_exit_code, agent(w).job_attempt = "failed", 75, 3
        await pass_time(w, 300)
        await w.run(120, 30)
        assert (await shown(w)).line == "failed (exit code 75, attempt 3 of 3)"
        (event,) = await results(w)
        assert event.data == {"exit_code": 75, "attempt": 3}
        assert event.reason == "The job failed with exit code 75 in attempt 3 of 3."
        out = session_out(w.ctx, await w.session((await session(w)).id), w.clock.now(), Sight.OWN).job
        assert out is not None
        assert (out.attempt, out.attempts) == (3, 3)


async def test_attempts_need_an_agent(one: World) -> None:
    """A cloud without one is refused before the request is posted."""
    reply = await one.ask(candidates=("kaggle",), run=RUN, attempts=3)
    assert not reply.ok
    assert reply.code == "agent_missing"
    assert reply.sentence == "attempts= needs GPU Shopper's agent, which doesn't run at kaggle with this job."
    assert (await one.books()).requests == ()


async def test_a_session_without_a_command_has_no_job(one: World) -> None:
    w = one
    async with listening(w):
        await w.running(candidates=("vast",))
        await pass_time(w, 1)
        agent(w).job = "done"
        await pass_time(w, 300)
        await w.run(120, 30)
        view = await w.session((await session(w)).id)
        assert (view.session.job_state, job_status_of(view), await results(w)) == (None, None, [])
        assert session_out(w.ctx, view, w.clock.now(), Sight.OWN).job is None


async def test_a_job_that_ended_before_its_machine_was_ready_ends_the_session(one: World) -> None:
    w = one
    async with listening(w):
        await begun(w)
        row = await session(w)
        assert row.ready_at is not None
        agent(w).job, agent(w).job_exit_code = "done", 0
        (instance,) = (await w.books()).instances
        async with w.ctx.db.write() as tx:
            before = row.ready_at - timedelta(seconds=30)
            await amend_node(tx, instance.id, work="done", work_over_at=before)
        await pass_time(w, 61)
        assert (await session(w)).early_end_code == "completed"
        await pass_time(w, 200)
        assert (await session(w)).end_code == "completed"


async def test_an_end_before_the_job_interrupts_it(one: World) -> None:
    w = one
    w.tune(replacements=0)
    async with listening(w):
        request_id = await begun(w)
        await w.end(request_id)
        assert (await session(w)).job_state is None  # It may still save.
        await w.run(120, 30)
        assert await shown(w) == JobStatus(JobState.INTERRUPTED)
        (event,) = await results(w)
        assert event.reason == "The job was interrupted: its machine ended first."


async def test_a_job_that_waits_for_another_machine_is_interrupted_when_nobody_approves_one(one: World) -> None:
    w = one
    w.tune(replacements=0)
    async with listening(w):
        request_id = await begun(w)
        (instance,) = (await w.books()).instances
        w.clouds["vast"].disturb(str(instance.ref), "vanish")
        await w.run(1200, 60)
        assert (await session(w)).state is SessionState.QUEUED
        assert (await shown(w)).state is JobState.QUEUED
        await w.cancel(request_id)
        await w.settle()
        row = await session(w)
        assert (row.state, row.job_state) == (SessionState.FAILED, JobState.INTERRUPTED)
        assert len(await results(w)) == 1


async def test_a_machine_that_is_lost_after_its_job_is_not_replaced(one: World) -> None:
    w = one
    async with listening(w):
        await begun(w)
        w.tune(done_grace_s=3000)
        agent(w).job, agent(w).job_exit_code = "done", 0
        await pass_time(w, 61)
        (instance,) = (await w.books()).instances
        w.clouds["vast"].disturb(str(instance.ref), "vanish")
        await w.run(1200, 60)
        row = await session(w)
        assert (row.state, row.end_code) == (SessionState.TERMINATED, "lost")
        assert (await shown(w), len((await w.books()).instances)) == (JobStatus(JobState.SUCCEEDED, 0), 1)
        assert len(await results(w)) == 1


async def test_a_start_up_that_failed_is_a_failed_job_once_the_session_ends(one: World) -> None:
    w = one
    async with listening(w):
        request_id = await w.running(candidates=("vast",), run=RUN)
        await pass_time(w, 1)
        agent(w).machine = startup("skipped", repo=128)
        await pass_time(w, 61)
        assert await shown(w) == JobStatus(JobState.FAILED, 128, "repo")
        assert (await session(w)).job_state is None  # A reboot runs its start-up again.
        await w.end(request_id)
        await w.run(120, 30)
        assert await shown(w) == JobStatus(JobState.FAILED, 128)


@pytest.mark.slow
async def test_a_run_of_a_batch_cloud_has_a_result_without_an_agent(one: World) -> None:
    w = one
    await w.running(candidates=("kaggle",), hours=Decimal(1))
    assert (await shown(w)).state is JobState.RUNNING
    await w.run(4 * 3600, 300)
    row = await session(w)
    assert row.state is SessionState.TERMINATED
    assert row.job_state in (JobState.SUCCEEDED, JobState.FAILED)
    assert len(await results(w)) == 1


async def test_a_webhook_is_told_once_how_a_job_ended(one: World) -> None:
    w = one
    async with listening(w), told(w) as consumer:
        await program(w, "atlas")
        await hook(w, consumer, principal(ATLAS), "job")
        await begun(w, ATLAS)
        agent(w).job, agent(w).job_exit_code = "done", 0
        await pass_time(w, 300)
        await w.run(120, 30)
        await pump(w)
        assert consumer.types() == ["job.succeeded"]
        said = consumer.taken[0]["data"]["session"]
        assert (said["job_state"], said["job_exit_code"]) == ("succeeded", 0)
