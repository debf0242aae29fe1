"""Quotes: what the clouds answer, who did not, and what was left out and why."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.policy.consumers import ConsumerPolicy
from bot.services.market.catalog import Catalog
from bot.services.market.document import market_page
from bot.services.plans import planner
from bot.services.requests import quoting
from ledger.core.claims import claim
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.views import RequestView
from providers.completeness import Extent
from providers.gpus.constraint import GpuConstraint
from providers.registry import REGISTRY
from tests.support.matrix import clouds_with, on_clouds
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, World

EVERYTHING = JobRequest(gpu=GpuConstraint((), 1, 8), hours=Decimal(2))
JOB = JobRequest(gpu=GpuConstraint(("RTX4090",), 1, 1), hours=Decimal(2))


async def quoted(w: World, **changes: Any) -> RequestView:
    reply = await w.ask(**changes)
    assert reply.ok, reply
    await w.settle()
    return await w.view(str(reply.data["request_id"]))


async def test_options_are_ranked_by_expected_total_and_marked(w: World) -> None:
    view = await quoted(w)
    assert view.request.state is RequestState.PENDING
    assert [option.expected_usd for option in view.options] == sorted(o.expected_usd for o in view.options)
    assert {mark for option in view.options for mark in option.marks} == {"best cost-efficiency", "best stability"}
    assert {token.action for token in view.tokens} == {"approve", "reject"}
    assert len({token.token for token in view.tokens}) == len(view.options) + 1


async def test_bad_prices_are_left_out_and_said(w: World) -> None:
    view = await quoted(w)
    assert view.quote is not None
    bad = {entry["code"]: entry for entry in view.quote.excluded}["price_missing"]
    assert bad["count"] >= 1
    assert "no valid price" in bad["sentence"]
    assert all(option.price_usd_h > 0 for option in view.options)


async def test_what_nobody_sells_is_unavailable_and_says_why(w: World) -> None:
    view = await quoted(w, gpu=GpuConstraint(("RTX4090",), 1, 1), max_price_usd_h=Decimal("0.01"))
    assert view.request.state is RequestState.UNAVAILABLE
    assert view.request.outcome.startswith("No offer fits now.")
    assert "above the highest price per hour" in view.request.outcome
    opening = re.search(r"The cheapest offer that fits needs price=\$([0-9.]+): 1x RTX4090 at ", view.request.outcome)
    assert opening is not None, view.request.outcome
    assert (view.options, view.tokens) == ((), ())
    again = await quoted(w, gpu=GpuConstraint(("RTX4090",), 1, 1), max_price_usd_h=Decimal(opening[1]))
    assert again.options
    assert (view.options, view.tokens) == ((), ())


async def test_a_request_and_the_inventory_give_the_same_advice_when_nothing_fits(w: World) -> None:
    job = replace(JOB, regions=("Atlantis",))
    listing = await w.ctx.catalog.inventory(job, w.ctx.policy)
    assert not listing.rows
    place, opening, *_ = listing.advice
    assert place.startswith("No offer is in “Atlantis” now; there are offers in ")
    assert opening.startswith("With region=")
    view = await quoted(w, regions=("Atlantis",))
    assert view.request.outcome.startswith(f"No offer fits now. {place} {opening}")


async def test_a_cloud_that_runs_programs_says_that_it_needs_one_and_how_many_gpus_it_has(w: World) -> None:
    one: dict[str, Any] = {"candidates": ("kaggle",), "gpu": GpuConstraint(("T4",), 1, 1)}
    refused = await w.ask(**one, run=None)
    assert (refused.ok, refused.code) == (False, "run_missing")
    assert 'kaggle runs one program and nothing else. Name it, such as run="python train.py".' in refused.sentence
    view = await quoted(w, **one, run="python train.py")
    assert "With count=2, 1 offer fits: 2x T4 at kaggle" in view.request.outcome
    two = await quoted(w, candidates=("kaggle",), gpu=GpuConstraint(("T4",), 2, 2), run="python train.py")
    assert [option.cloud for option in two.options] == ["kaggle"]


@on_clouds(VARIED=True)
async def test_one_cloud_that_is_down_only_loses_itself(w: World, cloud: str) -> None:
    w.arm("search_503", cloud, times=None)
    w.tune(options_shown=50)
    # Every cloud with a varied market sells this GPU, alone.
    view = await quoted(w, gpu=GpuConstraint(("A6000",), 1, 1))
    assert view.request.state is RequestState.PENDING
    assert {option.cloud for option in view.options} == set(clouds_with(VARIED=True)) - {cloud}
    assert view.quote is not None
    answers = {answer["cloud"]: answer for answer in view.quote.clouds}
    assert (answers[cloud]["ok"], answers[cloud]["count"]) == (False, 0)
    assert answers[cloud]["sentence"] == f"1 of {len(w.clouds)} clouds did not answer: {cloud}."


async def test_when_every_cloud_is_down_the_request_says_so(w: World) -> None:
    w.arm("search_503", times=None)
    view = await quoted(w, gpu=GpuConstraint(count_max=8))
    assert view.request.state is RequestState.UNAVAILABLE
    names = " and ".join((", ".join(list(w.clouds)[:-1]), list(w.clouds)[-1]))
    count = len(w.clouds)
    assert view.request.outcome == f"{count} of {count} clouds did not answer: {names}. Try again."


async def test_while_most_of_the_market_is_unknown_no_change_of_the_request_is_advised(w: World) -> None:
    down = ("runpod", "lambda", "tensordock")
    for cloud in down:
        w.arm("search_503", cloud, times=None)
    none: dict[str, Any] = {"gpu": GpuConstraint(("RTX4090",), 1, 1), "max_price_usd_h": Decimal("0.001")}
    view = await quoted(w, **none)
    lead = "3 of 5 clouds did not answer: runpod, lambda and tensordock. Try again. No offer that was read fits."
    assert view.request.outcome.startswith(lead)
    assert "With price=" not in view.request.outcome
    planned = await planner.plan(w.ctx.catalog, w.clock, job_of(view.request.job), w.ctx.policy)
    assert (planned.relaxations, planned.nothing) == ((), lead)
    listing = await w.ctx.catalog.inventory(job_of(view.request.job), w.ctx.policy)
    assert (listing.advice, market_page(listing).summary) == ((), lead)
    assert await w.ctx.catalog.openings(job_of(view.request.job), w.ctx.policy), "vast alone has offers"


@pytest.fixture
async def silent_url() -> AsyncIterator[str]:
    """A server that takes every connection and never answers."""
    held: list[asyncio.StreamWriter] = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in held:
        writer.close()
    server.close()


async def test_one_cloud_that_hangs_is_waited_for_once_and_then_left_out(w: World, silent_url: str) -> None:
    hanging = REGISTRY["runpod"].connect(w.clouds["runpod"].environment(silent_url), w.clock)
    w.tune(offers_timeout_s=1.0)
    w.use({**w.ctx.providers, "runpod": hanging})
    request_id = str((await w.ask()).data["request_id"])
    await quoting.quote_due(w.ctx)
    view = await w.view(request_id)
    assert {option.cloud for option in view.options} == {"vast"}
    assert view.quote is not None
    answers = {answer["cloud"]: answer["sentence"] for answer in view.quote.clouds}
    assert answers["runpod"] == f"1 of {len(w.clouds)} clouds did not answer: runpod."
    await hanging.close()


async def test_a_cloud_that_is_not_set_up_is_named(w: World) -> None:
    view = await quoted(w, candidates=("vast", "nowhere"))
    assert view.quote is not None
    answers = {answer["cloud"]: answer["sentence"] for answer in view.quote.clouds}
    assert "not set up here" in answers["nowhere"]
    assert {option.cloud for option in view.options} == {"vast"}


async def test_one_offer_of_an_inventory_answer_can_be_asked_for(w: World) -> None:
    look = await w.ctx.catalog.inventory(JOB, w.ctx.policy)
    wanted = look.rows[3][0].id
    view = await quoted(w, offer_id=wanted)
    assert [option.offer_id for option in view.options] == [wanted]


async def test_an_offer_of_another_cloud_than_was_named_or_allowed_is_refused_at_once(w: World) -> None:
    gpu = GpuConstraint((w.clouds["runpod"].STAPLE,), 1, 1)
    found = await w.ctx.providers["runpod"].offers(gpu, disk_gb=50, spot=False)
    elsewhere = await w.ask(gpu=gpu, candidates=("vast",), offer_id=found[0].id)
    assert (elsewhere.code, found[0].id in elsewhere.sentence) == ("offer_elsewhere", True)
    atlas = Actor(ActorKind.CONSUMER, "atlas")
    w.tune(consumers={"atlas": ConsumerPolicy(clouds=("vast",), gpus=("3090",))})
    assert (await w.ask(atlas, gpu=gpu, offer_id=found[0].id)).code == "cloud_not_allowed"
    assert (await w.books()).requests == ()
    # At a cloud that is allowed, the GPU is still one of those that are.
    dear = (await w.ctx.providers["vast"].offers(GpuConstraint(("RTX4090",), 1, 1), disk_gb=50, spot=False))[0].id
    await w.ask(atlas, gpu=GpuConstraint(), offer_id=dear)
    await quoting.quote_due(w.ctx)
    assert (await w.books()).requests[-1].state is RequestState.UNAVAILABLE


@pytest.mark.parametrize("wanted", ["vast:1", "nowhere:gpu_1x_a100"])
async def test_an_offer_that_is_not_for_sale_is_named(w: World, wanted: str) -> None:
    view = await quoted(w, offer_id=wanted)
    assert view.request.state is RequestState.UNAVAILABLE
    assert view.request.outcome.startswith(f"{wanted} is not for sale now.")


@pytest.mark.both_databases
async def test_a_request_that_is_cancelled_while_it_is_quoted_stays_cancelled(w: World) -> None:
    reply = await w.ask()
    other = w.replica()
    asking = asyncio.create_task(quoting.quote_due(other.ctx))
    cancelled = await w.cancel(str(reply.data["request_id"]), ALICE)
    await asking
    await other.ctx.db.close()
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert cancelled.ok
    assert view.request.state is RequestState.CANCELLED


async def test_answers_are_remembered_for_a_minute_and_then_asked_again(w: World) -> None:
    catalog: Catalog = w.ctx.catalog
    await catalog.market(JOB, 50)
    asked = len(w.engine.calls)
    w.clock.advance(59)
    await catalog.market(JOB, 50)
    assert len(w.engine.calls) == asked
    await asyncio.gather(*(catalog.market(JOB, 50, fresh=True) for _ in range(5)))
    once = len(w.engine.calls) - asked
    assert once > 0
    w.clock.advance(61)
    before = len(w.engine.calls)
    await catalog.market(JOB, 50)
    assert len(w.engine.calls) - before == once


async def test_all_pages_are_in_the_first_answer(w: World) -> None:
    market = await w.ctx.catalog.market(EVERYTHING, 50)
    assert market.completeness.is_complete
    assert sum(answer.count for answer in market.answers) == len(market.offers)
    assert len([offer for offer in market.offers if offer.cloud == "vast"]) > 64
    assert {offer.gpu_count for offer in market.offers if offer.cloud == "runpod"} == set(range(1, 9))


async def test_further_pages_that_fail_leave_the_first_and_say_so(w: World) -> None:
    w.engine.faults.arm("vast", "search_503", None, skip=1)
    market = await w.ctx.catalog.market(replace(EVERYTHING, candidates=("vast",)), 50)
    assert ("vast", "search_503") in w.engine.faults.bitten
    assert len(market.offers) == 64
    assert market.completeness.extent is Extent.PARTIAL
    assert market.completeness.why.startswith("Not all offers of Vast were read (")
    assert market.completeness.proof is None


class BrokenCatalog:
    """A catalog of ours that fails, so many times and then no more."""

    def __init__(self, inner: Any, times: int) -> None:
        self._inner = inner
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def market(self, *args: Any, **kwargs: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            raise KeyError("a bug of ours")
        return await self._inner.market(*args, **kwargs)


async def test_a_request_that_cannot_be_quoted_ends_and_says_so(w: World) -> None:
    """It ends with an incident that the log explains, and neither holds up the others nor waits for ever."""
    w.ctx = replace(w.ctx, catalog=BrokenCatalog(w.ctx.catalog, quoting.TRIES_MAX))  # type: ignore[arg-type]
    broken = str((await w.ask()).data["request_id"])
    tries = 0
    while (await w.view(broken)).request.state is RequestState.QUOTING:
        tries += await quoting.quote_due(w.ctx)
        w.clock.advance(100)
    view = await w.view(broken)
    assert (view.request.state, tries) == (RequestState.UNAVAILABLE, quoting.TRIES_MAX)
    assert re.search(r"Reading the offers failed \(incident [0-9a-f]{8}\)\.", view.request.outcome)
    assert (await quoted(w)).request.state is RequestState.PENDING


async def test_a_failure_that_passes_is_forgotten(w: World) -> None:
    w.ctx = replace(w.ctx, catalog=BrokenCatalog(w.ctx.catalog, 2))  # type: ignore[arg-type]
    request_id = str((await w.ask()).data["request_id"])
    for _ in range(3):
        await quoting.quote_due(w.ctx)
        w.clock.advance(30)
    assert (await w.view(request_id)).request.state is RequestState.PENDING


async def test_a_request_that_kills_every_process_that_quotes_it_ends_too(w: World) -> None:
    request_id = str((await w.ask()).data["request_id"])
    lease = timedelta(seconds=w.ctx.timing.claim_ttl_s)
    states = {RequestState.QUOTING}
    await claim(w.ctx.db, Request, now=w.clock.now(), states=states, limit=1, lease=lease)
    for _ in range(quoting.TRIES_MAX - 1):
        w.clock.advance(w.ctx.timing.claim_ttl_s)
        (held,) = await claim(w.ctx.db, Request, now=w.clock.now(), states=states, limit=1, lease=lease)
        assert await quoting.may_try(w.ctx, held)  # And then this process dies in the middle as well.
    w.clock.advance(w.ctx.timing.claim_ttl_s)
    await quoting.quote_due(w.ctx)
    view = await w.view(request_id)
    assert view.request.state is RequestState.UNAVAILABLE
    assert "never finished" in view.request.outcome


async def test_a_failure_of_a_request_that_was_cancelled_meanwhile_changes_nothing(w: World) -> None:
    request_id = str((await w.ask()).data["request_id"])
    lease = timedelta(seconds=w.ctx.timing.claim_ttl_s)
    (held,) = await claim(w.ctx.db, Request, now=w.clock.now(), states={RequestState.QUOTING}, limit=1, lease=lease)
    assert (await w.cancel(request_id)).code == "cancelled"
    for _ in range(quoting.TRIES_MAX + 1):
        await quoting.failed(w.ctx, held, "0a0b0c0d")
    assert (await w.view(request_id)).request.state is RequestState.CANCELLED


async def test_copies_that_do_not_fit_the_disk_end_the_request_before_it_has_offers(w: World) -> None:
    shelf = Shelf(public=True)
    shelf.put("set/a.bin", 40 * 10**9, w.clock.now())
    shelf.put("set/train.log", 20 * 10**9, w.clock.now())
    async with served(shelf) as stores:
        w.ctx = replace(w.ctx, checkpoints=stores, node_url="https://bot.example")
        view = await quoted(w, mounts=("COPY /data s3://bucket/set",), disk_gb=50)
        assert (view.request.state, view.quote) == (RequestState.UNAVAILABLE, None)
        assert view.request.outcome == (
            "The files in file_mounts need 60 GB, and the image needs 20 GB. A disk of 50 GB is too small for both. "
            "Ask for a larger one, such as disk=80GB."
        )
        assert set(shelf.asked) == {""}, "the service's own keys are not for a requester's places"
        for enough in (
            {"mounts": ("COPY /data s3://bucket/set",), "disk_gb": 80},
            {"mounts": ("MOUNT /data s3://bucket/set",), "disk_gb": 50},
            {"mounts": ("COPY /data s3://bucket/none", "COPY /b hf://datasets/org/name"), "disk_gb": 50},
        ):
            assert (await quoted(w, **enough)).quote is not None
        shelf.public = False
        assert (await quoted(w, mounts=("COPY /data s3://bucket/set",), disk_gb=50)).quote is not None
