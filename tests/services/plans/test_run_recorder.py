"""Runs that record themselves: the steady rate of a session's agent, once, when the session has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from bot.agent.settings import read
from bot.rules.jobs.facets.work import workload
from bot.rules.sizing.throughput import tokens_per_s
from bot.services.nodes.checkins import Checkins
from bot.services.plans.run_history import measured_runs, record_session
from bot.services.plans.run_recorder import FIRST, RunRecorder
from bot.wire.checkin import Checkin, CheckinAnswer
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world

WORK = ("model=1B", "tokens=30M", "seq=2048", "batch=64")
#: Nobody listens there, so no agent of the sandbox reports.
NODE_URL = "http://127.0.0.1:9"


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service that its instances can reach."""
    async with checked_world(db, clock) as built:
        built.ctx = replace(built.ctx, node_url=NODE_URL)
        yield built


def predicted(words: tuple[str, ...] = WORK) -> float:
    found = tokens_per_s(workload(words), GPUS["RTX4090"], 1)
    assert found is not None
    return found.expected


async def trained(w: World, rates: list[float], words: tuple[str, ...] = WORK) -> str:
    """A session whose agent reported these rates, one a minute. It has ended. Returns the request's id."""
    gpu = GpuConstraint(("RTX4090",), 1, 1)
    request_id = await w.running(gpu=gpu, hours=Decimal(4), work=words, candidates=("vast",))
    vast = w.clouds["vast"]
    (ref,) = (str(one.ref) for one in vast.instances() if one.alive)
    token = read({**vast.variables(ref), **vast.injected(ref)}).boot_token
    for seq, rate in enumerate(rates, 1):
        w.clock.advance(60)
        report = Checkin(seq=seq, utilisation=(Decimal(97),), step=seq, tokens_per_s=Decimal(str(round(rate, 3))))
        assert isinstance(await Checkins(w.ctx).take(token, report), CheckinAnswer)
    await w.end(request_id)
    await w.run(600, 60)
    return request_id


@pytest.mark.both_databases
@pytest.mark.slow
async def test_a_session_that_ended_corrects_later_plans_by_itself_and_once(w: World) -> None:
    half = predicted() / 2
    warming_up, spike = [half / 50] * 6, [half * 7]
    request_id = await trained(w, [*warming_up, *[half] * 20, *spike])
    recorder, replica = RunRecorder(w.ctx), RunRecorder(w.ctx)
    assert sorted(await asyncio.gather(recorder.look(), replica.look())) == [0, 1]
    assert [await recorder.look(), await RunRecorder(w.ctx).look()] == [0, 0]
    (one,) = await measured_runs(w.ctx.db)
    assert (one.request_id, one.words, one.count, one.by_itself) == (request_id, WORK, 1, True)
    assert one.run.measured_tokens_s == pytest.approx(half, abs=0.01)
    assert one.run.predicted_tokens_s == pytest.approx(predicted())
    assert one.stated is not None
    assert one.stated.low < one.stated.expected < one.stated.high
    assert one.stated.holds(one.stated.expected)
    assert not one.stated.holds(one.stated.high * 2)
    (event,) = [event for event in (await w.books()).events if event.kind == "run.measured"]
    assert event.actor == SYSTEM.ref


async def test_the_stated_rate_is_what_the_runs_before_made_of_it(w: World) -> None:
    half = predicted() / 2
    await trained(w, [half] * 12)
    await RunRecorder(w.ctx).look()
    await trained(w, [half] * 12)
    assert await RunRecorder(w.ctx).look() == 1
    second, first = await measured_runs(w.ctx.db)
    assert first.stated is not None
    assert second.stated is not None
    assert first.stated.expected == pytest.approx(predicted())
    assert half < second.stated.expected < first.stated.expected


async def test_what_was_recorded_by_hand_stays(w: World) -> None:
    request_id = await trained(w, [predicted()] * 12)
    ops = Actor(ActorKind.OPERATOR, "ops")
    assert (await record_session(w.ctx.db, request_id, Decimal(9000), ops, w.clock.now())).ok
    assert await RunRecorder(w.ctx).look() == 0
    (one,) = await measured_runs(w.ctx.db)
    assert (one.run.measured_tokens_s, one.by_itself) == (9000.0, False)


@pytest.mark.parametrize(
    ("factor", "count", "words"),
    [
        (1.0, 5, WORK),
        (20.0, 12, WORK),
        (1.0, 12, ()),
        (1.0, 12, ("model=1B", "type=batch", "tokens=30M")),
        (1.0, 12, ("tokens=30M",)),
    ],
)
async def test_a_run_that_says_nothing_about_the_gpu_is_not_recorded(
    w: World, factor: float, count: int, words: tuple[str, ...]
) -> None:
    await trained(w, [predicted() * factor] * count, words)
    assert await RunRecorder(w.ctx).look() == 0
    assert await measured_runs(w.ctx.db) == ()


async def test_the_policy_can_turn_it_off_and_what_ended_long_ago_is_left_alone(w: World) -> None:
    await trained(w, [predicted()] * 12)
    off = replace(w.ctx, policy=replace(w.ctx.policy, record_runs=False))
    assert await RunRecorder(off).look() == 0
    w.clock.advance(FIRST.total_seconds())
    assert await RunRecorder(w.ctx).look() == 0
    assert await measured_runs(w.ctx.db) == ()
