"""Preflight: who fails it is said once and not bought from, at the quote and again before the create."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.jobs.job import JobRequest
from bot.services.market.preflight import BAD_S, GOOD_S, Checks, refusal
from bot.services.requests import quoting
from bot.slack.blocks.request import request_message
from bot.wiring import build_catalog
from ledger.kernel.states import InstanceState, RequestState
from providers.contract import Balance, Preflight, Provider
from providers.gpus.constraint import GpuConstraint
from tests.support.clock import SteppedClock
from tests.support.stores import Shelf, served
from tests.support.world import World


class Account:
    """A cloud's account whose checks answer what a test wants; everything else is the real adapter's."""

    def __init__(self, inner: Provider, **answer: object) -> None:
        self._inner = inner
        self.answer: Preflight | None = replace(Preflight(inner.name, ok=True), **answer)  # type: ignore[arg-type]
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def preflight(self) -> Preflight:
        self.asked += 1
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        return self.answer


def account(w: World, cloud: str, **answer: object) -> Account:
    """Put an account of this kind at a cloud."""
    made: list[Account] = []

    def wrapper(inner: Provider) -> Provider:
        made.append(Account(inner, **answer))
        return made[0]  # type: ignore[return-value] # It passes on whatever it does not answer itself.

    w.wrap(cloud, wrapper)
    return made[0]


async def quoted(w: World) -> tuple[str, str]:
    """A request that was quoted, and everything that its message says about clouds and offers left out."""
    request_id = str((await w.ask()).data["request_id"])
    await w.settle()
    view = await w.view(request_id)
    assert view.quote is not None, view.request.outcome
    told = [str(c["sentence"]) for c in view.quote.clouds if not c["ok"]] + [
        str(e["sentence"]) for e in view.quote.excluded
    ]
    return request_id, " ".join(told)


async def test_a_cloud_that_fails_its_check_is_said_once_and_not_offered(w: World) -> None:
    account(w, "vast", ok=False, problem="the API key was revoked", where="https://keys.example", code="auth_failed")
    request_id, told = await quoted(w)
    assert {"runpod"} <= {option.cloud for option in (await w.view(request_id)).options} <= {"runpod", "tensordock"}
    assert told.count("vast is not bought from: the API key was revoked. See https://keys.example.") == 1


@pytest.mark.parametrize("code", ["auth_failed", "unavailable", "unexpected_response", None])
async def test_only_a_check_that_was_answered_leaves_the_market_whole(w: World, code: str | None) -> None:
    silent = account(w, "tensordock", ok=False, problem="no usable answer", code=code or "")
    if code is None:
        silent.answer = None  # It never answers.
    request_id, _ = await quoted(w)
    view = await w.view(request_id)
    assert "tensordock" not in {option.cloud for option in view.options}
    card = str(request_message(view, w.ctx.policy).blocks)
    late = r"it did not answer within [\d.]+ s whether the account can be used"
    why = "no usable answer" if code is not None else late
    assert re.search(rf"tensordock is not bought from: {why}\.", card)
    refused = code == "auth_failed"
    assert (any(option.marks for option in view.options), "heapest" in card) == (refused, refused)


async def test_offers_that_the_account_cannot_pay_are_left_out_and_counted(w: World) -> None:
    account(w, "vast", balance=Balance(Decimal("0.01")))
    request_id, told = await quoted(w)
    assert {"runpod"} <= {option.cloud for option in (await w.view(request_id)).options} <= {"runpod", "tensordock"}
    assert "our account there can't pay" in told


async def test_a_check_that_fails_before_the_create_sends_nothing_and_the_next_cloud_is_tried(w: World) -> None:
    w.tune(options_shown=20)
    request_id, _ = await quoted(w)
    chosen = (await w.view(request_id)).options[0]
    other = account(w, chosen.cloud, ok=False, problem="the account is suspended", code="auth_failed")
    assert (await w.decide(request_id)).ok
    await w.settle()
    first, *rest = sorted((await w.books()).instances, key=lambda row: row.created_at)
    assert (first.state, first.outcome_code) == (InstanceState.REJECTED, "auth_failed")
    assert "the account is suspended" in first.outcome
    assert all(row.cloud != chosen.cloud for row in rest)
    assert other.asked >= 1
    assert {call.cloud for call in w.engine.creates} <= set(w.clouds) - {chosen.cloud}


async def test_credit_that_ran_out_since_the_quote_is_a_definite_no(w: World) -> None:
    request_id, _ = await quoted(w)
    for cloud in w.clouds:
        account(w, cloud, balance=Balance(Decimal("0.02")))
    assert (await w.decide(request_id)).ok
    await w.settle()
    assert w.engine.creates == []
    assert {row.outcome_code for row in (await w.books()).instances} == {"insufficient_funds"}
    assert (await w.view(request_id)).request.state is RequestState.UNAVAILABLE


async def test_a_good_answer_stands_for_a_minute_and_a_bad_one_for_ten_seconds(w: World) -> None:
    asked = account(w, "vast")
    checks = w.ctx.catalog.checks
    one, two = await asyncio.gather(checks.check("vast"), checks.check("vast"))
    assert (one.ok, two.ok, asked.asked) == (True, True, 1)
    w.clock.advance(GOOD_S - 1)
    assert ((await checks.check("vast")).ok, asked.asked) == (True, 1)
    asked.answer = Preflight("vast", ok=False, problem="gone")
    assert not (await checks.check("vast", fresh=True)).ok
    w.clock.advance(BAD_S)
    assert ((await checks.check("vast")).ok, asked.asked) == (False, 3)


async def test_being_asked_too_often_says_nothing_against_an_account(w: World) -> None:
    asked = account(w, "vast", ok=False, problem="too often", code="rate_limited")
    checks = w.ctx.catalog.checks
    assert (await checks.check("vast")).ok
    assert (await checks.check("vast")).ok
    assert asked.asked == 2, "it proved nothing, so it is not kept"


async def test_a_check_that_hangs_fails_at_the_deadline_and_can_be_closed(w: World, clock: SteppedClock) -> None:
    asked = account(w, "vast")
    asked.answer = None
    checks = Checks(w.ctx.providers, clock, 0.05)
    found = await checks.check("vast")
    assert not found.ok
    assert refusal(found).startswith("vast is not bought from: it did not answer within 0.05 s")
    waiting = Checks(w.ctx.providers, clock, 60)
    task = asyncio.create_task(waiting.check("vast"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await waiting.close()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_is_missing_is_named() -> None:
    checked = Preflight(
        "vast", ok=False, missing=("VAST_API_KEY",), where="https://k", problem="the API key is not set"
    )
    assert refusal(checked) == "vast is not bought from: the API key is not set (VAST_API_KEY). See https://k."


async def test_clouds_without_credentials_are_named_once(w: World) -> None:
    catalog = build_catalog({"vast": w.ctx.providers["vast"]}, w.clock, w.ctx.timing)
    market = await catalog.market(JobRequest(GpuConstraint(("RTX4090",)), Decimal(2)), 50)
    silent = [answer for answer in market.answers if not answer.ok]
    assert [answer.cloud for answer in silent] == ["runpod", "lambda", "tensordock", "kaggle"]
    told = [answer.sentence for answer in silent if answer.sentence]
    assert told == ["runpod, lambda, tensordock and kaggle are not set up here, so they were not asked."]


async def test_a_checkpoint_location_without_its_credentials_is_offered_nothing_and_never_created(w: World) -> None:
    def given(*stores: str) -> None:
        w.ctx = replace(w.ctx, catalog=build_catalog(w.ctx.providers, w.clock, w.ctx.timing, stores=stores))

    given()
    w.tune(checkpoint_places=("s3://bucket",))
    calls = len(w.engine.calls)
    refused = str((await w.ask(checkpoint="s3://bucket/run")).data["request_id"])
    await quoting.quote_due(w.ctx)
    view = await w.view(refused)
    assert (view.request.state, view.quote) == (RequestState.UNAVAILABLE, None)
    assert view.request.outcome.startswith("Checkpoints at s3://bucket/run need AWS_ACCESS_KEY_ID and AWS_SECRET")
    assert len(w.engine.calls) == calls  # No cloud was asked.

    given("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    approved = await w.approved(candidates=("vast",), checkpoint="s3://bucket/run")
    given()
    await w.settle()
    view = await w.view(approved)
    assert [row.state for row in view.instances] == [InstanceState.REJECTED]
    assert view.request.state is RequestState.UNAVAILABLE
    assert "need AWS_ACCESS_KEY_ID" in view.request.outcome
    assert w.engine.creates == []


async def test_a_place_that_everybody_may_read_is_offered_without_credentials_and_a_private_one_is_not(
    w: World,
) -> None:
    w.tune(checkpoint_places=("gs://bucket",))
    shelf = Shelf(public=True)
    async with served(shelf, without_keys=True) as stores:
        w.ctx = replace(w.ctx, checkpoints=stores)
        for public in (True, False):
            shelf.public = public
            calls = len(w.engine.calls)
            asked = str((await w.ask(checkpoint="gs://bucket/run")).data["request_id"])
            await quoting.quote_due(w.ctx)
            view = await w.view(asked)
            assert (view.quote is not None) == public
            assert (len(w.engine.calls) > calls) == public
        assert view.request.state is RequestState.UNAVAILABLE
        assert view.request.outcome.startswith("Checkpoints at gs://bucket/run are not public: gs://bucket")
        assert "To read them, this service needs GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY" in view.request.outcome


async def test_a_checkpoint_location_that_the_policy_does_not_list_is_offered_nothing_and_never_created(
    w: World,
) -> None:
    stores = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    w.ctx = replace(w.ctx, catalog=build_catalog(w.ctx.providers, w.clock, w.ctx.timing, stores=stores))
    refused = str((await w.ask(checkpoint="s3://payroll/backups")).data["request_id"])
    await quoting.quote_due(w.ctx)
    view = await w.view(refused)
    assert (view.request.state, view.quote) == (RequestState.UNAVAILABLE, None)
    assert "the policy doesn't list that place under checkpoint_places. It lists none." in view.request.outcome

    w.tune(checkpoint_places=("s3://payroll",))
    approved = await w.approved(candidates=("vast",), checkpoint="s3://payroll/backups")
    w.tune(checkpoint_places=("s3://team",))
    await w.settle()
    view = await w.view(approved)
    assert [row.state for row in view.instances] == [InstanceState.REJECTED]
    assert "It lists s3://team." in view.request.outcome
    assert w.engine.creates == []
