"""The market when clouds hang, fail or ask to slow down: who is waited for, what is kept, and what people read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.services.market.answers import refusals
from bot.services.market.catalog import Catalog, MarketAnswer
from bot.services.market.reads import FRESH_S, STRETCHED_S
from providers.capabilities import Capabilities
from providers.contract import Provider
from providers.gpus.constraint import GpuConstraint
from providers.registry import REGISTRY
from tests.support.proxy_provider import InFront
from tests.support.world import World

JOB = JobRequest(gpu=GpuConstraint(("RTX4090",)), hours=Decimal(2))
DEADLINE_S = 0.5
SLACK_S = 0.05


class Cloud:
    """Answers every call with one status, or never (status 0). Counts the calls."""

    def __init__(self) -> None:
        self.status = 500
        self.headers = ""
        self.calls = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline() not in (b"\r\n", b""):
                pass
            self.calls += 1
            if self.status == 0:
                await reader.read()
            body = b'{"success": false, "error": "rate_limit_exceeded", "msg": "x"}'
            head = f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(body)}\r\n{self.headers}Connection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def answering(status: int, headers: str = "") -> AsyncIterator[tuple[Cloud, str]]:
    cloud = Cloud()
    cloud.status, cloud.headers = status, headers
    server = await asyncio.start_server(cloud.answer, "127.0.0.1", 0)
    try:
        yield cloud, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def said(market: MarketAnswer) -> dict[str, str]:
    return {answer.cloud: answer.sentence for answer in market.answers if not answer.ok}


async def test_bad_clouds_neither_delay_nor_hide_the_good_one(w: World) -> None:
    good = w.ctx.providers["vast"]
    sandbox = w.clouds["vast"]
    async with answering(0) as (_, hanging), answering(500) as (_, failing), answering(429) as (_, limited):
        urls = {"hanging": hanging, "failing": failing, "limited": limited}
        bad = {name: REGISTRY["vast"].connect(sandbox.environment(url), w.clock) for name, url in urls.items()}
        took: list[float] = []
        loop = asyncio.get_running_loop()
        for _ in range(3):
            w.tune(offers_timeout_s=DEADLINE_S)
            w.use({"vast": good, **bad})
            began = loop.time()
            market = await w.ctx.catalog.market(JOB, 50)
            took.append(loop.time() - began)
            assert market.offers
            assert {offer.cloud for offer in market.offers} == {"vast"}
            assert set(said(market)) == set(bad)
            assert said(market)["hanging"] == "hanging did not answer within 0.5 s."
            if took[-1] < DEADLINE_S + SLACK_S:
                break
        # The best of up to three, since other programs use this machine too.
        assert min(took) < DEADLINE_S + SLACK_S
        for provider in bad.values():
            await provider.close()


async def test_a_cloud_that_asks_to_slow_down_is_asked_every_five_minutes_and_then_again_every_minute(w: World) -> None:
    async with answering(429) as (limited, url):
        slow = REGISTRY["vast"].connect(w.clouds["vast"].environment(url), w.clock)
        good = w.ctx.providers["vast"]
        clouds = {"vast": good}
        w.use(clouds)
        catalog = w.ctx.catalog
        first = await catalog.market(JOB, 50, policy=w.ctx.policy)
        assert first.offers

        clouds["vast"] = slow
        w.clock.advance(FRESH_S)
        stale = await catalog.market(JOB, 50, policy=w.ctx.policy)
        assert (stale.offers, limited.calls) == (first.offers, 1)
        assert stale.completeness.since == first.answers[0].at
        w.clock.advance(STRETCHED_S - FRESH_S - 1)
        look = await catalog.inventory(JOB, w.ctx.policy)
        assert limited.calls == 1
        assert [one.age(w.clock.now()) for one in look.answers] == [f"vast: {len(first.offers)} offers, 4 min old"]
        fresh = await catalog.market(JOB, 50, policy=w.ctx.policy, fresh=True)
        assert (fresh.offers, limited.calls) == ((), 2)
        w.clock.advance(1)
        assert "too often" in said(await catalog.market(JOB, 50, policy=w.ctx.policy))["vast"]
        assert limited.calls == 3

        clouds["vast"] = good
        again = await catalog.market(JOB, 50, policy=w.ctx.policy)
        assert again.answers[0].at == w.clock.now()
        w.clock.advance(FRESH_S)
        assert (await catalog.market(JOB, 50, policy=w.ctx.policy)).answers[0].at == w.clock.now()
        await slow.close()


async def test_what_was_just_bought_is_shown_to_nobody_else(w: World) -> None:
    """Somebody who asks within the minute would approve an offer that is gone, and be asked again."""
    w.boots_in(0)
    request_id = await w.approved(candidates=("vast",))
    seen = await w.ctx.catalog.market(JOB, 50)
    await w.settle()
    rented = (await w.books()).instances[0]
    assert rented.request_id == request_id
    again = await w.ctx.catalog.market(JOB, 50)
    assert w.clock.now() - seen.answers[0].at < timedelta(seconds=FRESH_S)
    on = rented.machine_id
    before, after = ({one.key for one in found.offers if one.machine_id == on} for found in (seen, again))
    assert before
    assert not before & after


async def test_the_time_that_a_cloud_names_is_waited(w: World) -> None:
    async with answering(429, "Retry-After: 30\r\n") as (limited, url):
        slow = REGISTRY["vast"].connect(w.clouds["vast"].environment(url), w.clock)
        w.use({"vast": slow})
        assert "too often" in said(await w.ctx.catalog.market(JOB, 50))["vast"]
        w.clock.advance(29)
        assert said(await w.ctx.catalog.market(JOB, 50)) == {
            "vast": "vast limits its rate of calls, and is read again soon."
        }
        assert limited.calls == 1
        w.clock.advance(1)
        await w.ctx.catalog.market(JOB, 50)
        assert limited.calls == 2
        await slow.close()


async def test_a_failure_that_is_no_refusal_shortens_and_stretches_nothing(w: World) -> None:
    job = replace(JOB, candidates=("vast",))
    await w.ctx.catalog.market(job, 50)
    w.clock.advance(FRESH_S)
    w.arm("search_503", "vast", times=None)
    failed = await w.ctx.catalog.market(job, 50)
    assert (failed.offers, set(said(failed))) == ((), {"vast"})


async def test_an_answer_is_kept_a_minute_also_after_the_clock_was_set_back(w: World) -> None:
    job, policy = replace(JOB, candidates=("vast",)), w.ctx.policy
    catalog = Catalog(w.ctx.providers, w.clock, DEADLINE_S)
    first = await catalog.market(job, 50, policy=policy)
    pinned = await catalog.inventory(job, policy)
    w.clock.jump(-timedelta(days=1))
    w.clock.advance(FRESH_S - 1)
    assert (await catalog.market(job, 50, policy=policy)).answers == first.answers
    assert await catalog.inventory(job, policy) is pinned
    w.clock.advance(1)
    assert (await catalog.market(job, 50, policy=policy)).answers[0].at == w.clock.now()
    assert (await catalog.inventory(job, policy)).answers[0].at == w.clock.now()


@pytest.mark.parametrize(("seconds", "old"), [(0, "0 s old"), (119, "119 s old"), (120, "2 min old")])
async def test_the_age_of_prices_is_told(w: World, seconds: int, old: str) -> None:
    market = await w.ctx.catalog.market(replace(JOB, candidates=("vast",)), 50)
    w.clock.advance(seconds)
    assert market.answers[0].age(w.clock.now()) == f"vast: {len(market.offers)} offers, {old}"


async def test_a_cloud_that_is_named_for_spot_and_has_none_says_which_clouds_have_some(w: World) -> None:
    asked = replace(JOB, spot=SpotPolicy.YES)
    market = await w.ctx.catalog.market(replace(asked, candidates=("runpod",)), 50)
    assert refusals(market.answers) == ("runpod rents out no spot GPUs while RUNPOD_SPOT is off. These do: vast.",)
    lambdas = await w.ctx.catalog.market(replace(asked, candidates=("lambda",)), 50)
    assert refusals(lambdas.answers) == ("lambda rents out no spot GPUs. These do: vast.",)
    both = await w.ctx.catalog.market(replace(asked, candidates=("runpod", "vast")), 50)
    assert {one.cloud for one in both.offers} == {"vast"}
    for other in (asked, replace(JOB, candidates=("runpod",))):
        assert refusals((await w.ctx.catalog.market(other, 50)).answers) == ()


class Withdrawn(InFront):
    """A cloud that stopped renting out spot GPUs, although the setting for them is on."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, spot=False, spot_gone="RunPod rents no such pods any more.")


async def test_a_cloud_that_stopped_renting_out_spot_says_so_wherever_spot_is_asked_for(w: World) -> None:
    w.wrap("runpod", lambda inner: cast("Provider", Withdrawn(inner)))
    said_so = ("RunPod rents no such pods any more. These do: vast.",)
    for kind in (SpotPolicy.YES, SpotPolicy.ANY):
        assert refusals((await w.ctx.catalog.market(replace(JOB, spot=kind), 50)).answers) == said_so
    assert refusals((await w.ctx.catalog.market(JOB, 50)).answers) == ()


async def test_what_is_about_to_be_bought_is_asked_afresh_and_a_price_is_one_that_the_ledger_keeps(w: World) -> None:
    offer = next(one for one in (await w.ctx.catalog.market(JOB, 50)).offers if (one.price_usd_h or 0) > 0)
    w.clouds[offer.cloud].reprice(offer.key, Decimal("1.0333333333"))
    fresh = await w.ctx.catalog.reprice(offer, 50)
    assert fresh is not None
    assert fresh.price_usd_h is not None
    assert offer.price_usd_h is not None
    assert (fresh.key, fresh.price_usd_h > offer.price_usd_h) == (offer.key, True)
    assert fresh.price_usd_h == fresh.price_usd_h.quantize(Decimal("0.000001"))
    assert await w.ctx.catalog.reprice(replace(offer, key="nothing"), 50) is None


async def test_each_cloud_is_asked_for_hosts_that_can_run_the_image_it_would_get(w: World) -> None:
    old = {one.id for one in (await w.ctx.catalog.market(JOB, 50)).offers if one.cuda_max == Decimal("12.2")}
    assert any(one.startswith("vast:") for one in old)
    market = await w.ctx.catalog.market(JOB, 50, policy=w.ctx.policy)
    assert market.offers
    assert not old & {one.id for one in market.offers}
    own = replace(JOB, image="own/image:1")
    assert old <= {one.id for one in (await w.ctx.catalog.market(own, 50, policy=w.ctx.policy)).offers}
