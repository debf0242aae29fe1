"""Times of own sessions: what the machines of ended sessions showed reaches the next plan of a described run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.jobs.job import JobRequest
from bot.rules.sizing.start_times import NO_TIMES, Losses
from bot.services.plans import planner
from bot.services.plans.session_times import REMEMBERED, session_times
from ledger.models import Node
from providers.gpus.constraint import GpuConstraint
from tests.support.world import World

#: Nobody listens there, so no agent of the sandbox reports.
NODE_URL = "http://127.0.0.1:9"
JOB = JobRequest(
    GpuConstraint(("RTX4090",), 1, 1),
    Decimal(4),
    candidates=("vast",),
    work=("model=1B", "tokens=30M", "seq=2048", "batch=64"),
)


async def seen(w: World) -> set[str]:
    found = await planner.plan(w.ctx.catalog, w.ctx.clock, JOB, w.ctx.policy)
    assert found.best is not None
    return {one for one in found.best.estimate.assumptions if "yours" in one or "Your" in one}


@pytest.mark.both_databases
@pytest.mark.slow
async def test_a_loss_its_replacement_and_both_boots_are_learnt_when_the_session_ended(w: World) -> None:
    w.ctx = replace(w.ctx, node_url=NODE_URL)
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.running(candidates=("vast",), hours=Decimal(6))
    await w.run(3600, 300)
    (first,) = (await w.books()).instances
    w.clouds["vast"].disturb(str(first.ref), "vanish")
    await w.run(1800, 60)
    assert await session_times(w.ctx.db, w.clock.now()) == NO_TIMES
    assert await seen(w) == set()
    await w.end(request_id)
    await w.run(600, 60)
    first, second = sorted((await w.books()).instances, key=lambda row: row.n)
    async with w.ctx.db.write() as tx:
        steps = [
            {"name": "packages", "state": "done", "seconds": 44},
            {"name": "repo", "state": "failed", "seconds": 9},
        ]
        (await tx.get_one(Node, second.id)).report = {"steps": steps}
    found = await session_times(w.ctx.db, w.clock.now())
    boots = [row.reachable_at - row.sent_at for row in (first, second) if row.reachable_at and row.sent_at]
    assert len(boots) == 2
    booted = found.boots["vast", "RTX4090"]
    assert (booted.count, booted.total_s) == (2, sum(boots, timedelta()).total_seconds())
    lost = found.losses["vast", False]
    assert lost.count == 1
    assert 1 < lost.hours < 2
    assert (found.waits.count, {name: one.total_s for name, one in found.steps.items()}) == (1, {"packages": 44.0})
    assert 0 < found.waits.total_s < 1800
    said = await seen(w)
    assert any("(from 2 sessions of yours)" in one for one in said)
    assert "Your on-demand sessions at this cloud lost 1 machine in 1 hour." in said
    w.clock.advance(REMEMBERED.total_seconds())
    assert await session_times(w.ctx.db, w.clock.now()) == NO_TIMES


async def test_a_session_that_ended_in_order_lost_nothing(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(6))
    await w.run(7200, 600)
    await w.end(request_id)
    await w.run(600, 60)
    found = await session_times(w.ctx.db, w.clock.now())
    lost = found.losses["vast", False]
    assert lost == Losses(0, lost.hours)
    assert lost.hours == pytest.approx(2, abs=0.3)
    assert found.waits.count == 0
