"""The first request of a cold market: it waits for the whole, says what is still read, and keeps to each pace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from bot.rules.approvals.decision import Decision
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.market.ranking import rank
from bot.services.approvals import by_offer
from bot.services.approvals.by_offer import Named
from bot.services.instances import launch
from bot.services.market.catalog import Catalog, MarketAnswer
from bot.services.market.copies import EVERY_S, USED_FOR_S
from bot.services.requests import quoting
from bot.services.runtime.commands import Reply
from bot.slack.blocks.elements import Message
from bot.slack.blocks.request import request_message
from bot.slack.blocks.request_details import request_details
from ledger.engine.db import Database
from ledger.kernel.states import RequestState
from providers.completeness import AnswerPart, Completeness, Extent, Rest
from providers.contract import Offer, Provider
from providers.errors import Unavailable
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.serving import adapters, catalog_of
from tests.support.world import BOB, World, checked_world, facts

OPEN = JobRequest(GpuConstraint((), 1, 8), Decimal(2))
BOTH = replace(OPEN, spot=SpotPolicy.ANY)
NAMED = JobRequest(GpuConstraint(("RTX4090",), 1, 1), Decimal(2))
_ZERO = Decimal(0)
#: Vast answers ten searches a minute.
SEARCHES_A_MINUTE = 10
#: How long a person waits beyond the first cloud's answer.
PATIENCE_S = 3.0


@pytest.fixture
async def paced(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service whose clouds count calls, and whose adapters keep to what the clouds document."""
    async with checked_world(db, clock, sandbox=SandboxTiming.quick(enforce_rate_limits=True)) as built:
        built.use(adapters(built.environments, built.ctx.clock, LocalPacer(clock), volumes=False))
        clock.advance(120)
        yield built


def searches(w: World) -> list[float]:
    """When Vast was searched, in seconds of the clock."""
    return [call.at.timestamp() for call in w.engine.calls if call.cloud == "vast" and "bundles" in call.path]


def most_in_a_minute(times: list[float]) -> int:
    return max((sum(at <= other < at + 60 for other in times) for at in times), default=0)


def first_of(w: World, job: JobRequest, market: MarketAnswer) -> str:
    proof = market.completeness.proof
    options = rank(market.offers, job, w.ctx.policy, w.ctx.catalog.capabilities, proof=proof, to_run=True).options
    return options[0].offer.id


async def whole(w: World, job: JobRequest) -> MarketAnswer:
    """The market as a process sees it that waits for all of it."""
    catalog = catalog_of(w.ctx.providers, w.ctx.clock, w.ctx.timing, w.ctx.db)
    catalog.patience_s = None
    try:
        return await catalog.market(job, job.disk_gb, policy=w.ctx.policy)
    finally:
        await catalog.close()


async def copied(w: World, seconds: float) -> None:
    """Let the ticker copy the markets for so long."""
    end = w.clock.monotonic() + seconds
    while w.clock.monotonic() < end:
        for cloud in w.ctx.catalog.copied_clouds:
            await w.ctx.catalog.copy_next(cloud, w.ctx.policy)
        w.clock.advance(1)


def text_of(message: Message) -> str:
    return f"{message.text} {message.blocks}"


@pytest.mark.parametrize("job", [OPEN, NAMED, replace(OPEN, gpu=GpuConstraint(("H100-SXM",), 1, 8))])
async def test_a_cold_question_is_whole_within_the_first_turns_of_each_cloud(paced: World, job: JobRequest) -> None:
    began_s = paced.clock.monotonic()
    market = await paced.ctx.catalog.market(job, job.disk_gb, policy=paced.ctx.policy)
    assert market.completeness.is_complete
    assert paced.clock.monotonic() - began_s <= PATIENCE_S
    assert most_in_a_minute(searches(paced)) <= SEARCHES_A_MINUTE
    if job is OPEN:
        assert len([offer for offer in market.offers if offer.cloud == "vast"]) > 128
        assert {offer.gpu_count for offer in market.offers if offer.cloud == "runpod"} == set(range(1, 9))


async def test_both_kinds_take_as_long_as_the_pace_and_no_longer(paced: World) -> None:
    began_s = paced.clock.monotonic()
    market = await whole(paced, BOTH)
    assert market.completeness.is_complete
    calls = len(searches(paced))
    assert paced.clock.monotonic() - began_s <= (calls - 4) * 12
    assert most_in_a_minute(searches(paced)) <= SEARCHES_A_MINUTE


async def decided(w: World, request_id: str) -> Reply:
    command = Named(request_id, Decision.APPROVE, facts(BOB), offer_id="vast:1")
    return await by_offer.decide(w.ctx, command)


class Gated(InFront):
    """A cloud that answers at once, and keeps the rest until somebody opens the gate."""

    def __init__(self, inner: Provider, gate: asyncio.Event) -> None:
        super().__init__(inner)
        self._gate = gate

    async def offers(self, *args: Any, rest: Rest = None, **options: Any) -> AnswerPart[Offer]:
        if rest is not None:
            await self._gate.wait()
        return await self.inner.offers(*args, rest=rest, **options)


def gated(w: World) -> asyncio.Event:
    """Let Vast keep the rest of its answers until the event is set."""
    gate = asyncio.Event()
    w.wrap("vast", lambda inner: cast("Provider", Gated(inner, gate)))
    return gate


async def test_a_part_of_the_market_is_never_cheapest_nor_approved(w: World) -> None:
    gate = gated(w)
    w.tune(auto_approve_below_usd=Decimal(10_000), auto_approve_signed_by=BOB.id, auto_approve_until=date(2099, 1, 1))
    w.ctx.catalog.patience_s = 0.0
    reply = await w.ask(gpu=OPEN.gpu)
    request_id = str(reply.data["request_id"])
    assert await quoting.quote_due(w.ctx) == 1
    view = await w.view(request_id)
    assert view.request.state is RequestState.QUOTING
    assert view.request.looking is not None
    assert "vast" in view.request.looking["clouds"]
    assert not view.options
    card = text_of(request_message(view, w.ctx.policy))
    looking = re.search("Still reading offers from (RunPod and )?Vast\\.", card)
    assert looking is not None
    assert "So far: " in card
    assert "heapest" not in card
    assert "Approve" not in card
    early = await decided(w, request_id)
    assert (early.ok, early.sentence) == (False, f"{looking[0]} Try again when that is done.")

    w.clock.advance(2)
    assert await quoting.quote_due(w.ctx) == 1
    assert (await w.view(request_id)).request.state is RequestState.QUOTING
    gate.set()
    w.ctx.catalog.patience_s = None
    w.clock.advance(2)
    assert await quoting.quote_due(w.ctx) == 1
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    assert view.request.looking is None
    assert "best cost-efficiency" in view.options[0].marks
    assert view.options[0].offer_id == first_of(w, job_of(view.request.job), await whole(w, job_of(view.request.job)))


async def test_a_described_run_gets_its_hours_from_the_whole_market(w: World) -> None:
    job = replace(OPEN, work=("model=7B", "type=lora", "tokens=20M"))
    w.ctx.catalog.patience_s = 0.0
    reply = await w.ask(gpu=job.gpu, work=job.work, hours=Decimal(1))
    w.ctx.catalog.patience_s = None
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert view.request.state is RequestState.PENDING
    assert job_of(view.request.job).hours != 1
    assert Decimal(str(view.options[0].estimate["worst_hours"])) <= job_of(view.request.job).hours
    assert "best cost-efficiency" in view.options[0].marks


@pytest.mark.slow
async def test_with_a_copy_the_first_question_of_the_day_is_one_search(paced: World) -> None:
    await copied(paced, EVERY_S)
    before = len(searches(paced))
    paced.ctx.catalog.patience_s = 0.0
    for job in (OPEN, BOTH, replace(OPEN, disk_gb=700), replace(OPEN, gpu=GpuConstraint((), 1, 8, Decimal(40)))):
        await copied(paced, EVERY_S)
        paced.clock.advance(60)
        began, began_s = len(searches(paced)), paced.clock.monotonic()
        market = await paced.ctx.catalog.market(job, job.disk_gb, policy=paced.ctx.policy)
        assert market.completeness.is_complete
        assert paced.clock.monotonic() == began_s
        assert len(searches(paced)) - began == (2 if job is BOTH else 1)
        paced.clock.advance(120)
        fresh = await whole(paced, job)
        prices = {(one.id, one.spot): one.price_usd_h for one in fresh.offers}
        assert {(one.id, one.spot) for one in market.offers} == set(prices)
        for one in market.offers:
            # The sandbox rounds the total that a copy adds up itself.
            assert abs((one.price_usd_h or _ZERO) - (prices[one.id, one.spot] or _ZERO)) <= Decimal("0.000001")
        assert first_of(paced, job, market) == first_of(paced, job, fresh)
    assert before < len(searches(paced))
    assert most_in_a_minute(searches(paced)) <= SEARCHES_A_MINUTE


@pytest.mark.slow
async def test_the_copy_keeps_to_its_share_of_each_pace(paced: World) -> None:
    began = paced.clock.now()
    await copied(paced, 3_600)
    calls = [call for call in paced.engine.calls if call.at >= began]
    hourly = {cloud: sum(call.cloud == cloud for call in calls) for cloud in paced.clouds}
    assert {cloud for cloud, count in hourly.items() if count} == {"runpod", "vast"}
    assert 60 < hourly["vast"] <= 150, "half of five a minute, at most"
    assert 60 < hourly["runpod"] <= 512, "a fifth of forty a minute"
    assert most_in_a_minute(searches(paced)) <= 6


async def test_an_old_copy_and_one_of_what_was_sold_say_nothing(paced: World) -> None:
    await copied(paced, EVERY_S)
    catalog: Catalog = paced.ctx.catalog
    copies = catalog._reads.copies
    copy = copies.of("vast", spot=False)
    assert copy is not None
    gone = copy.copy.offers[-1]
    catalog.sold(gone)
    left = copies.of("vast", spot=False)
    assert left is not None
    assert gone.machine_id not in {offer.machine_id for offer in left.copy.offers}
    paced.clock.advance(USED_FOR_S)
    assert copies.of("vast", spot=False) is None


async def keys_of_runpod(w: World) -> tuple[MarketAnswer, set[str], set[str]]:
    """RunPod's market as the copy shows it, its offers, and those that RunPod sells."""
    job = replace(OPEN, candidates=("runpod",))
    w.clock.advance(61)
    market = await w.ctx.catalog.market(job, 50, policy=w.ctx.policy)
    fresh = await whole(w, job)
    return market, {offer.key for offer in market.offers}, {offer.key for offer in fresh.offers}


async def test_a_refused_create_takes_nothing_out_of_the_copy(paced: World) -> None:
    await copied(paced, EVERY_S)
    request_id = await paced.approved(candidates=("runpod",), gpu=GpuConstraint((), 2, 8))
    paced.arm("create_429", "runpod", retry_after=7)
    await launch.send_due(paced.ctx)
    assert (await paced.view(request_id)).instances[0].outcome_code == "rate_limited"
    market, offers, sold = await keys_of_runpod(paced)
    assert market.completeness.is_complete
    assert offers == sold


async def test_a_kind_of_gpu_that_we_bought_once_stays_in_the_copy(paced: World) -> None:
    await copied(paced, EVERY_S)
    paced.clock.advance(61)
    market = await paced.ctx.catalog.market(replace(OPEN, candidates=("runpod",)), 50, policy=paced.ctx.policy)
    bought = next(offer for offer in market.offers if offer.gpu_count == 2)
    assert bought.machine_id is None
    paced.ctx.catalog.sold(bought)
    market, offers, sold = await keys_of_runpod(paced)
    assert market.completeness.is_complete
    assert offers == sold


class Changed(InFront):
    """A cloud that asks a twentieth for eight GPUs once it `has_changed`, and one page is all when it `is_silent`."""

    has_changed = is_silent = False

    async def offers(self, *args: Any, rest: Rest = None, **options: Any) -> AnswerPart[Offer]:
        if rest is not None and self.is_silent:
            raise Unavailable("runpod", "no answer")
        answer = await self.inner.offers(*args, rest=rest, **options)
        if not self.has_changed:
            return answer
        items = (replace(o, price_usd_h=(o.price_usd_h or _ZERO) / 20) if o.gpu_count == 8 else o for o in answer)
        return AnswerPart(tuple(items), answer.completeness, answer.rest)


async def changing(w: World) -> Changed:
    """RunPod, of whose market there is an old copy."""
    w.wrap("runpod", lambda inner: cast("Provider", Changed(inner)))
    await copied(w, EVERY_S)
    w.clock.advance(USED_FOR_S - 300)
    return cast("Changed", w.ctx.providers["runpod"])


MANY = GpuConstraint(("H100-SXM",), 2, 8)


async def test_the_rest_behind_an_old_copy_is_read_before_the_quote_is_final(paced: World) -> None:
    (await changing(paced)).has_changed = True
    reply = await paced.ask(gpu=MANY)
    request_id = str(reply.data["request_id"])
    view = await paced.view(request_id)
    for _ in range(60):
        await quoting.quote_due(paced.ctx)
        view = await paced.view(request_id)
        if view.request.state is not RequestState.QUOTING:
            break
        paced.clock.advance(2)
    assert view.request.state is RequestState.PENDING
    assert "best cost-efficiency" in view.options[0].marks
    job = job_of(view.request.job)
    assert view.options[0].offer_id == first_of(paced, job, await whole(paced, job))
    assert view.options[0].offer["gpu_count"] == 8


async def test_an_old_copy_that_cannot_be_read_again_says_since_when_it_may_be_wrong(paced: World) -> None:
    began = paced.clock.now()
    (await changing(paced)).is_silent = True
    reply = await paced.ask(gpu=MANY, candidates=("runpod",))
    await quoting.quote_due(paced.ctx)
    view = await paced.view(str(reply.data["request_id"]))
    assert view.request.state is RequestState.PENDING
    assert view.quote is not None
    (cloud,) = view.quote.clouds
    assert Completeness.from_json(cloud["completeness"]).extent is Extent.STALE
    assert began <= datetime.fromisoformat(cloud["copied_at"]) <= began + timedelta(seconds=EVERY_S)
    assert all(not option.marks for option in view.options)
    card = text_of(request_message(view, paced.ctx.policy))
    assert re.search(r"RunPod's offers are from \d\d:\d\d UTC\.", card)
    assert "heapest" not in card
    details = text_of(request_details(view, paced.ctx.policy))
    assert "*Offers beyond the first page are from*: RunPod <!date^" in details


async def test_the_last_answer_of_a_rate_limited_cloud_says_since_when_it_may_be_wrong(w: World) -> None:
    read_at = w.clock.now()
    await w.ctx.catalog.market(NAMED, 50, policy=w.ctx.policy)
    w.arm("search_429", "vast", times=None, retry_after=30)
    w.clock.advance(59)
    assert (await w.ctx.catalog.market(NAMED, 50, policy=w.ctx.policy)).completeness.is_complete
    for seconds in (2, 200):
        w.clock.advance(seconds)
        market = await w.ctx.catalog.market(NAMED, 50, policy=w.ctx.policy)
        (answer,) = (one for one in market.answers if one.cloud == "vast")
        assert answer.ok
        assert answer.completeness == Completeness.stale(read_at, f"Vast's offers are from {read_at:%H:%M} UTC.")
        assert market.completeness.proof is None


async def test_a_cloud_that_stays_away_is_named_and_nothing_is_cheapest(w: World) -> None:
    w.arm("search_503", "tensordock", times=None)
    reply = await w.ask()
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert view.request.state is RequestState.PENDING
    assert all(not option.marks for option in view.options)
    card = text_of(request_message(view, w.ctx.policy))
    assert "TensorDock did not answer." in card
    assert "heapest" not in card
    market = await w.ctx.catalog.market(NAMED, 50, policy=w.ctx.policy)
    assert market.completeness.extent is Extent.PARTIAL


async def test_a_reading_that_never_ends_is_quoted_as_what_it_is(w: World) -> None:
    gated(w)
    w.ctx.catalog.patience_s = 0.0
    reply = await w.ask(gpu=OPEN.gpu)
    request_id = str(reply.data["request_id"])
    assert await quoting.quote_due(w.ctx) == 1
    assert (await w.view(request_id)).request.state is RequestState.QUOTING
    w.clock.advance(timedelta(minutes=6))
    assert await quoting.quote_due(w.ctx) == 1
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    card = text_of(request_message(view, w.ctx.policy))
    assert "Not all offers of Vast were read." in card
    assert "Still reading offers from" not in card
    assert "heapest" not in card
