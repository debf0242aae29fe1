"""Between the approval and the send the market moves: what is still covered goes, everything else is asked again."""

from __future__ import annotations

from decimal import Decimal
from typing import cast

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.services.approvals import decisions
from bot.services.runtime.commands import Decide
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from tests.support.proxy_provider import Noting, noting
from tests.support.world import BOB, CAROL, World, facts


async def test_a_price_inside_the_cap_is_bought_at_the_new_price(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    option = (await w.view(request_id)).options[0]
    w.clouds["vast"].reprice(option.offer_key, Decimal("1.05"))
    await w.settle()
    row = (await w.view(request_id)).instances[0]
    assert row.state is InstanceState.LIVE
    assert row.price_usd_h > option.price_usd_h


async def test_a_price_above_the_cap_is_asked_again_and_old_buttons_are_dead(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    old = await w.view(request_id)
    buttons = [token.token for token in old.tokens if token.action == "approve"]
    w.clouds["vast"].reprice(old.options[0].offer_key, Decimal(3))
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "above the approved" in view.request.outcome
    assert (view.request.decided_by, view.request.chosen_option_id) == (None, None)
    assert [instance.state for instance in view.instances] == [InstanceState.REJECTED]
    assert view.session is not None
    assert view.session.state is SessionState.QUEUED
    books = await w.books()
    assert [grant.state for grant in books.grants] == [GrantState.VOID]
    assert {entry.kind for entry in books.entries} == {"reserve", "release"}
    assert w.engine.creates == []
    for button in buttons:
        refused = await decisions.decide(w.ctx, Decide(button, facts(CAROL)))
        assert (refused.ok, refused.code) == (False, "quote_moved")
    # The dearer offer is no longer the cheapest, and the next approval buys what it shows.
    assert (await w.decide(request_id, CAROL)).code == "approved"
    await w.settle()
    view = await w.view(request_id)
    assert [instance.state for instance in view.instances] == [InstanceState.REJECTED, InstanceState.LIVE]
    assert len(w.engine.creates) == 1
    assert view.request.outcome == ""


async def test_a_rejection_with_an_old_button_still_counts(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    old = await w.view(request_id)
    reject = next(token.token for token in old.tokens if token.action == "reject")
    w.clouds["vast"].reprice("*", Decimal(3))
    await w.settle()
    reply = await decisions.decide(w.ctx, Decide(reject, facts(CAROL), "too dear now"))
    assert reply.code == "rejected"
    view = await w.view(request_id)
    assert view.session is not None
    assert (view.request.state, view.session.state) == (RequestState.REJECTED, SessionState.FAILED)


async def test_an_offer_that_went_is_followed_by_the_next_covered_one(w: World) -> None:
    w.tune(price_tolerance=Decimal(2))
    request_id = await w.approved(candidates=("vast",))
    options = (await w.view(request_id)).options
    w.withdraw(options[0])
    await w.settle()
    view = await w.view(request_id)
    assert [instance.option_id for instance in view.instances] == [options[0].id, options[1].id]
    assert [instance.state for instance in view.instances] == [InstanceState.REJECTED, InstanceState.LIVE]
    assert view.request.state is RequestState.APPROVED
    assert view.instances[1].price_usd_h <= (await w.books()).grants[0].price_cap_usd_h


async def test_an_offer_that_went_without_another_inside_the_cap_is_asked_again(w: World) -> None:
    w.tune(price_tolerance=Decimal(1))
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()
    cheapest = min((await w.view(request_id)).options, key=lambda option: option.price_usd_h)
    await w.decide(request_id, rank=cheapest.rank)
    w.withdraw(cheapest)
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "within the approved amount" in view.request.outcome
    assert cheapest.offer_id not in {option.offer_id for option in view.options}


async def test_without_failover_an_offer_that_went_is_asked_again(w: World) -> None:
    w.tune(failover=False, price_tolerance=Decimal(2))
    request_id = await w.approved(candidates=("vast",))
    w.withdraw((await w.view(request_id)).options[0])
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert w.engine.creates == []


async def test_a_price_that_became_unusable_is_never_bought(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    option = (await w.view(request_id)).options[0]
    w.clouds["vast"].reprice(option.offer_key, Decimal(0))
    await w.settle()
    assert w.engine.creates == []
    assert (await w.view(request_id)).request.quote_version == 2


async def test_when_nothing_is_left_the_session_fails_and_says_why(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    while w.clouds["vast"].withdraw("*"):
        pass  # What is left of a machine comes back as a new offer.
    await w.settle()
    view = await w.view(request_id)
    assert view.request.state is RequestState.UNAVAILABLE
    assert "no longer for sale" in view.request.outcome
    assert view.session is not None
    assert (view.session.state, view.session.end_code) == (SessionState.FAILED, "no_offer")
    assert "session.ended" in w.board.kinds(view.session.id)


async def test_an_approval_that_is_not_used_in_time_buys_nothing(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.clock.advance(w.ctx.policy.request_ttl_s + 1)
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "expired before it was used" in view.request.outcome
    assert w.engine.creates == []
    assert (await w.decide(request_id, BOB)).code == "approved"
    await w.settle()
    assert len(w.alive()) == 1


async def test_asked_again_and_approved_late_still_gives_the_whole_time(w: World) -> None:
    w.tune(replacements=0)
    request_id = await w.approved(candidates=("vast",))
    w.arm("never_boots", "vast")
    await w.settle()
    await w.run(1500, 150)
    assert (await w.view(request_id)).request.quote_version == 2
    await w.run(3600, 600)
    await w.decide(request_id, CAROL)
    await w.settle()
    view = await w.view(request_id)
    sent_at = view.instances[1].sent_at
    assert sent_at is not None
    assert view.session is not None
    assert view.session.deadline is not None
    assert (view.session.deadline - sent_at).total_seconds() == 2 * 3600


@pytest.mark.both_databases
async def test_a_bid_that_was_beaten_leaves_a_stopped_instance_that_is_ended_at_once(w: World) -> None:
    request_id = await w.approved(candidates=("vast",), spot=SpotPolicy.YES)
    w.arm("create_half_made", "vast")
    await w.settle()
    w.clock.advance(60)
    await w.settle()
    first, *others = (await w.view(request_id)).instances
    made = {one.ref: one for one in w.clouds["vast"].instances()}
    assert first.ref in made
    assert (first.outcome_code, made[first.ref].alive) == ("broken", False)
    assert "before it ever ran" in first.outcome
    # Whatever was tried next is under the same approval, and nothing of it is at the cloud unknown to us.
    assert {one.ref for one in others if one.ref} == made.keys() - {first.ref}


async def test_a_spot_price_is_shown_approved_and_bid_with_a_margin(w: World) -> None:
    w.wrap("vast", noting)
    request_id = await w.approved(candidates=("vast",), spot=SpotPolicy.YES)
    option = (await w.view(request_id)).options[0]
    await w.settle()
    (spec,) = cast("Noting", w.ctx.providers["vast"]).specs
    assert spec.bid_usd_h is not None
    assert spec.offer.min_bid_usd_h is not None
    assert spec.bid_usd_h >= spec.offer.min_bid_usd_h * Decimal("1.05")
    row = (await w.view(request_id)).instances[0]
    assert (row.state, row.price_usd_h) == (InstanceState.LIVE, option.price_usd_h)
    assert abs(spec.bid_usd_h + spec.offer.storage_usd_h - row.price_usd_h) <= Decimal("0.000001")
