"""Own runs: what was recorded corrects plans and quotes, and a session that is recorded again counts once."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.jobs.facets.work import workload
from bot.rules.jobs.job import JobRequest
from bot.rules.market.ranking import RankedOption
from bot.rules.sizing.run_time import run_time
from bot.services.plans import planner
from bot.services.plans.run_history import measured_runs, record_run, record_session
from bot.services.plans.session_times import reader
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor, ActorKind
from providers.gpus.constraint import GpuConstraint
from tests.support.world import World

WORK = ("model=1B", "tokens=30M", "seq=2048", "batch=64")
JOB = JobRequest(GpuConstraint(("RTX4090",), 1, 1), Decimal(4), work=WORK)
OPERATOR = Actor(ActorKind.OPERATOR, "ops")


async def best(w: World) -> RankedOption:
    ctx = w.ctx
    found = (await planner.plan(ctx.catalog, ctx.clock, JOB, ctx.policy)).best
    assert found is not None
    return found


def rate(option: RankedOption) -> Decimal:
    assert option.estimate.tokens_per_s is not None
    return option.estimate.tokens_per_s[0]


async def recorded(w: World, tokens_s: Decimal, gpu: str = "RTX4090", words: tuple[str, ...] = WORK) -> Reply:
    return await record_run(w.ctx.db, words, gpu, 1, tokens_s, OPERATOR, w.ctx.clock.now())


async def test_a_recorded_run_corrects_every_later_plan(w: World) -> None:
    before = await best(w)
    assert not any("of this installation" in sentence for sentence in before.estimate.assumptions)
    reply = await recorded(w, rate(before) / 2)
    assert reply.sentence.endswith("50% of what was predicted. Plans are corrected by it from now on.")
    after = await best(w)
    runs = (await reader(w.ctx.db, w.clock)()).runs
    alone = run_time(workload(WORK), "RTX4090", 1, Decimal(4), runs)
    assert alone.throughput is not None
    assert rate(after) == Decimal(f"{alone.throughput.expected:.6g}")
    assert rate(before) / 2 < rate(after) < rate(before)
    assert after.estimate.hours > before.estimate.hours
    assert after.estimate.expected_usd > before.estimate.expected_usd
    assert any("corrected by 1 run of this installation" in sentence for sentence in after.estimate.assumptions)


async def test_a_quote_counts_with_the_same_runs_as_a_plan(w: World) -> None:
    await recorded(w, rate(await best(w)) / 2)
    corrected = await best(w)
    reply = await w.ask(gpu=JOB.gpu, hours=Decimal(4), work=WORK)
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert {Decimal(option.estimate["tokens_per_s"][0]) for option in view.options} == {rate(corrected)}


async def test_a_session_is_recorded_by_its_id_and_counts_once(w: World) -> None:
    reply = await w.ask(gpu=JOB.gpu, hours=Decimal(4), work=WORK)
    await w.settle()
    request_id = str(reply.data["request_id"])
    now = w.ctx.clock.now()
    early = await record_session(w.ctx.db, request_id, Decimal(9000), OPERATOR, now)
    assert (early.ok, early.code) == (False, "no_session")
    await w.decide(request_id)
    await w.settle()
    for tokens_s in (Decimal(9000), Decimal(8000)):
        w.clock.advance(1)
        told = await record_session(w.ctx.db, request_id, tokens_s, OPERATOR, w.ctx.clock.now())
        assert told.ok, told
    (one,) = await measured_runs(w.ctx.db)
    (session,) = (await w.books()).sessions
    assert (one.session_id, one.words, one.count) == (session.id, WORK, 1)
    assert (one.run.gpu, one.run.measured_tokens_s) == ("RTX4090", 8000.0)
    events = [event for event in (await w.books()).events if event.kind == "run.measured"]
    assert [event.actor for event in events] == [OPERATOR.ref] * 2


async def test_a_session_without_words_about_its_run_says_what_to_do(w: World) -> None:
    request_id = await w.approved()
    told = await record_session(w.ctx.db, request_id, Decimal(9000), OPERATOR, w.ctx.clock.now())
    assert (told.ok, told.code) == (False, "no_work")
    unknown = await record_session(w.ctx.db, "zzzz99", Decimal(9000), OPERATOR, w.ctx.clock.now())
    assert (unknown.ok, unknown.code) == (False, "unknown_id")


@pytest.mark.parametrize(
    ("tokens_s", "gpu", "words", "says"),
    [
        (Decimal(0), "RTX4090", WORK, "above zero"),
        (Decimal("Infinity"), "RTX4090", WORK, "above zero"),
        (Decimal(100), "X9000", WORK, "X9000 is not a GPU whose rates are known here."),
        (Decimal(100), "RTX4090", ("model=70B", "tokens=2B"), "Does not fit"),
        (Decimal(100), "RTX4090", ("tokens=2B",), "size was not said"),
    ],
)
async def test_what_cannot_be_compared_is_not_recorded(
    w: World, tokens_s: Decimal, gpu: str, words: tuple[str, ...], says: str
) -> None:
    reply = await recorded(w, tokens_s, gpu, words)
    assert (reply.ok, reply.code) == (False, "no_prediction")
    assert says in reply.sentence
    assert await measured_runs(w.ctx.db) == ()
