"""Results of a queue's commands: stored once each, kept for ever, and left out of a replacement's plan."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlalchemy.exc import DBAPIError

from bot.services.billing.metering import cost_now
from bot.services.nodes.job_results import job_status_of
from bot.services.nodes.startup import plans
from bot.services.sessions.queue_overview import queue_results
from ledger.kernel.job_state import JobState
from ledger.kernel.states import SessionState
from ledger.models import CommandResult
from ledger.queries.jobs.command_results import results_of
from ledger.queries.nodes import node_of
from tests.support.agents import agent, listening, pass_time
from tests.support.world import World

QUEUE = ("python a.py", "python b.py", "python c.py")


def result(w: World, index: int, number: int, code: int | None = 0, took_s: int = 30) -> dict[str, Any]:
    now_s = w.clock.now().timestamp()
    at = [
        w.clock.now().fromtimestamp(now_s - before, tz=w.clock.now().tzinfo).isoformat() for before in (took_s + 5, 5)
    ]
    times = {"started_at": at[0], "ended_at": at[1]}
    return {"index": index, "number": number, "gpu": 0, "exit_code": code, "attempts": 1, "log_tail": "end", **times}


async def rows(w: World) -> list[CommandResult]:
    async with w.ctx.db.read() as tx:
        return await results_of(tx, (await w.books()).sessions[0].id)


async def report(w: World, *results: dict[str, Any], done: int = 0, failed: int = 0, **more: Any) -> None:
    """Let the agent check in with these results."""
    counts = {"waiting": len(QUEUE) - done - failed, "running": 0, "done": done, "failed": failed}
    agent(w).machine = {"steps": [{"name": "run", "state": "done"}]}
    agent(w).more = {"queue": counts, "results": list(results), **more}
    await pass_time(w, 61)


async def test_each_result_is_stored_once_and_shown(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), queue=QUEUE)
        await pass_time(w, 61)
        first, second = result(w, 1, 2), result(w, 2, 1, 7)
        await report(w, first, second, done=1, failed=1)
        await report(w, {**first, "exit_code": 9}, second, done=1, failed=1)  # A check-in whose answer was lost.
        assert [(one.number, one.exit_code, one.log_tail) for one in await rows(w)] == [(1, 7, "end"), (2, 0, "end")]
        (instance,) = (await w.books()).instances
        async with w.ctx.db.read() as tx:
            node = await node_of(tx, instance.id)
            assert node is not None
            assert node.report["results_taken"] == 2
            session_id = instance.session_id
            assert sorted(one.exit_code == 0 for one in await results_of(tx, session_id)) == [False, True]
            plan = (await plans(tx, [instance.id]))[instance.id]
        queue = plan["steps"][-1]["queue"]
        assert (queue["commands"], queue["done"], queue["failed"]) == ([[3, "python c.py"]], 1, 1)
        view = await w.session(session_id)
        job = job_status_of(view)
        assert job is not None
        assert job.line == "running (queue 1/3 done, 1 failed)"
        agent(w).job, agent(w).job_exit_code = "failed", 1
        await report(w, result(w, 3, 3), done=2, failed=1)
        await pass_time(w, 300)
        await w.run(120, 30)
        view = await w.session(session_id)
        job = job_status_of(view)
        assert job is not None
        assert (view.session.state, job.state) == (SessionState.TERMINATED, JobState.FAILED)
        assert job.line == "failed (queue 2/3 done, 1 failed)"


async def test_what_commands_cost_and_what_was_idle_is_the_bill(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), queue=QUEUE)
        await pass_time(w, 300)
        await report(w, result(w, 1, 1, took_s=60), result(w, 2, 2, took_s=120), done=2)
        session_id = (await w.books()).sessions[0].id
        found = await queue_results(w.ctx, session_id, w.clock.now())
        costs = [one.cost_usd for one in found.commands]
        assert costs[0] > 0
        assert abs(costs[1] - 2 * costs[0]) <= Decimal("0.000002")
        assert costs[2] == 0
        assert found.idle_usd > 0
        assert sum(costs, found.idle_usd) == found.total_usd
        await w.run(7200, 600)
        found = await queue_results(w.ctx, session_id, w.clock.now())
        assert found.total_usd == cost_now(w.ctx, await w.session(session_id), w.clock.now())
        assert sum((one.cost_usd for one in found.commands), found.idle_usd) == found.total_usd


async def test_a_result_never_changes(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), queue=QUEUE)
        await pass_time(w, 61)
        await report(w, result(w, 1, 1), done=1)
        for change in (update(CommandResult).values(exit_code=1), delete(CommandResult)):
            with pytest.raises(DBAPIError, match="the result of a command"):
                async with w.ctx.db.write() as tx:
                    await tx.execute(change)
        assert [one.exit_code for one in await rows(w)] == [0]


async def test_a_queue_needs_an_agent(w: World) -> None:
    """A cloud without one is refused before the request is posted."""
    reply = await w.ask(candidates=("kaggle",), queue=QUEUE)
    assert (reply.ok, reply.code) == (False, "agent_missing")
    assert reply.sentence == "queue= needs GPU Shopper's agent, which doesn't run at kaggle with this job."
    assert (await w.books()).requests == ()


async def test_a_queue_is_refused_where_no_machine_could_reach_this_service(w: World) -> None:
    reply = await w.ask(candidates=("vast",), queue=QUEUE)
    assert (reply.ok, reply.code) == (False, "agent_missing")
    assert "until GPU_SHOPPER_NODE_URL is set" in reply.sentence
    assert (await w.books()).requests == ()
