"""A cloud that bills a running machine above the approved rate: asked, kept, stopped or ended as people say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.outbound.checkpoint_stores import Stores
from bot.rules.instances.power import PowerAction
from bot.services.billing import metering
from bot.services.instances import power, reconcile
from bot.services.market.catalog import Catalog
from bot.services.runtime.commands import Switch
from bot.services.sessions import overspend
from ledger.engine.db import Database
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance, Request, Session
from ledger.queries.session_costs import accrued_of_session
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import SteppedClock
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, BOB, World, checked_world, facts

#: A fifth more, as the sandboxes' `dearer`, and three fifths more.
DEARER, MUCH_DEARER = "dearer", "much_dearer"


def looks_at(w: World, stores: Stores) -> None:
    """From now on the service has these stores, and their credentials are set."""
    ctx = w.ctx
    catalog = Catalog(ctx.providers, ctx.clock, ctx.timing.offers_timeout_s, stores=tuple(stores.secrets))
    w.ctx = replace(ctx, catalog=catalog, checkpoints=stores)
    w.tune(checkpoint_places=("s3://bucket/run",))


async def row_of(w: World) -> Instance:
    return (await w.books()).instances[-1]


async def session_of(w: World) -> Session:
    return (await w.books()).sessions[0]


async def asked(w: World) -> list[Request]:
    return [one for one in (await w.books()).requests if one.kind == "overspend"]


async def end_of(w: World) -> float:
    """Hours from now to the session's end."""
    deadline = (await session_of(w)).deadline
    assert deadline is not None
    return (deadline - w.clock.now()) / timedelta(hours=1)


async def raised(w: World, *what: str) -> None:
    """The cloud raises the price of the machine, and one look at it and at its cost sees that."""
    row = await row_of(w)
    assert row.ref is not None
    for each in what or (DEARER,):
        w.clouds[row.cloud].disturb(row.ref, each)
    await reconcile.observe(w.ctx, row.cloud)
    await overspend.overspend_due(w.ctx)


async def lowered(w: World, share: str) -> None:
    """Vast.ai lowers it, and the same two look."""
    (contract,) = w.clouds["vast"].account.instances.values()  # type: ignore[attr-defined] # Vast's own.
    contract.reprice(w.clock.now(), Decimal(share))
    await reconcile.observe(w.ctx, "vast")
    await overspend.overspend_due(w.ctx)


@asynccontextmanager
async def checkpointed(w: World, cloud: str = "vast") -> AsyncIterator[tuple[Shelf, str]]:
    """A running session that names a store for its checkpoints, and that store."""
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        yield shelf, await w.running(candidates=(cloud,), checkpoint="s3://bucket/run", hours=Decimal(4))


async def test_a_running_machine_is_not_ended_by_its_price_but_asked_about_and_ends_earlier(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(4))
    w.clock.advance(600)
    await w.settle()
    before = await end_of(w)
    await raised(w, MUCH_DEARER, MUCH_DEARER)
    row, session, (one,) = await row_of(w), await session_of(w), await asked(w)
    assert (row.state, session.state) == (InstanceState.LIVE, SessionState.RUNNING)
    assert one.state is RequestState.PENDING
    assert session.deadline is not None
    assert f"now ends {session.deadline:%Y-%m-%d %H:%M} UTC" in one.reason
    # The same dollars pay for less: ten minutes at the old rate, and the rest at the new one.
    (grant,) = (await w.books()).grants
    assert await end_of(w) < before * 0.75
    spent = await spent_of(w)
    left = Decimal(str(await end_of(w))) * row.price_usd_h
    assert abs(spent + left - grant.total_cap_usd) < Decimal("0.002")
    await w.settle()
    assert [entry[2] for entry in w.board.shown if entry[1] == f"drift/{one.id}"] == [ALICE.id]
    assert [entry for entry in w.board.shown if entry[:2] == ("request.message", one.id)]
    # Nothing more happens by itself, and nobody is asked twice.
    await w.run(1200, 300)
    await overspend.overspend_due(w.ctx)
    assert (len(await asked(w)), len(w.alive())) == (1, 1)


async def spent_of(w: World) -> Decimal:
    """What the session has cost until now, booked and running."""
    view = await w.session((await session_of(w)).id)
    return metering.cost_now(w.ctx, view, w.clock.now())


async def test_nobody_answers_so_it_runs_until_the_approved_total_is_used_and_not_longer(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(4))
    w.clock.advance(600)
    await w.settle()
    await raised(w, MUCH_DEARER, MUCH_DEARER)
    end_s = await end_of(w) * 3600
    await w.run(end_s - 200, 600)
    assert len(w.alive()) == 1
    await w.run(260, 10)
    assert w.alive() == []
    await w.run(120, 30)
    session, (grant,) = await session_of(w), (await w.books()).grants
    assert session.end_code == "drift_unconfirmed"
    assert grant.total_cap_usd - Decimal("0.05") < w.bill() < grant.total_cap_usd + Decimal("0.02")


async def test_its_money_pays_from_when_its_cloud_says_that_billing_began(w: World) -> None:
    w.clock.advance(0.7)  # RunPod says whole seconds: it began before its create was sent.
    await w.running(candidates=("runpod",), hours=Decimal(4))
    row = await row_of(w)
    assert row.billing_from is not None
    assert row.sent_at is not None
    assert row.billing_from < row.sent_at
    w.clock.advance(600)
    await w.settle()
    await raised(w, MUCH_DEARER, MUCH_DEARER)
    w.clock.advance(await end_of(w) * 3600)
    (grant,) = (await w.books()).grants
    assert await spent_of(w) <= grant.total_cap_usd
    await w.run(120, 10)
    assert (await session_of(w)).end_code == "drift_unconfirmed"


async def test_an_approver_approves_the_new_rate_and_it_goes_on_inside_the_total(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(4))
    await raised(w)
    (one,) = await asked(w)
    before, grants = await end_of(w), len((await w.books()).grants)
    assert (await w.decide(one.id, ALICE)).code == "requester"
    assert (await w.decide(one.id, BOB)).code == "approved"
    assert len((await w.books()).grants) == grants  # It buys nothing: the total and the end stay.
    assert await end_of(w) == before
    await w.run(1200, 300)
    assert await overspend.overspend_due(w.ctx) == 0
    assert (await row_of(w)).state is InstanceState.LIVE
    # The rate that was approved covers a start, too.
    for order, state in ((PowerAction.STOP, SessionState.STOPPED), (PowerAction.START, SessionState.RUNNING)):
        assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), order))).code == "power_action"
        await w.run(60, 15)
        assert (await session_of(w)).state is state
    started = (await w.books()).grants[-1]
    assert (started.kind, started.request_id) == ("start", one.id)
    assert started.price_cap_usd_h >= (await row_of(w)).price_usd_h
    # A rate above what that answer covers is a new question.
    await raised(w, MUCH_DEARER)
    assert [each.state for each in await asked(w)] == [RequestState.APPROVED, RequestState.PENDING]
    assert len(w.alive()) == 1


async def test_an_approver_rejects_the_new_rate_and_it_is_ended_announced_and_asked_again(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(4))
    await raised(w)
    (one,) = await asked(w)
    assert (await w.decide(one.id, BOB, "reject", reason="too dear")).code == "rejected"
    assert ((await row_of(w)).state, len(w.alive())) == (InstanceState.TERMINATING, 1)
    await w.run(150, 15)
    assert w.alive() == []
    assert "session.interrupted" in w.board.kinds((await session_of(w)).id)
    view = await w.view(request_id)
    assert [each.outcome_code for each in view.instances] == ["billed_above_cap"]
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "rejected" in view.request.outcome


async def test_a_price_that_falls_again_withdraws_the_question_and_a_higher_one_replaces_it(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(4))
    await raised(w)
    await raised(w)
    assert [one.state for one in await asked(w)] == [RequestState.CANCELLED, RequestState.PENDING]
    await lowered(w, "0.6")
    assert [one.state for one in await asked(w)] == [RequestState.CANCELLED] * 2
    assert (await row_of(w)).state is InstanceState.LIVE


async def test_a_verified_checkpoint_stops_it_until_the_rate_is_approved(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, checkpointed(w) as (shelf, request_id):
        shelf.put("run/step-10/model.pt", 1_000, w.clock.now())
        await raised(w)
        (one,) = await asked(w)
        assert "Once its newest checkpoint is verified, it is stopped" in one.reason
        assert (await row_of(w)).wanted is None  # Its people are asked first.
        w.clock.advance(60)
        await overspend.overspend_due(w.ctx)
        assert (await row_of(w)).wanted == "stop"
        await w.run(60, 15)
        assert ((await session_of(w)).state, len(w.alive())) == (SessionState.STOPPED, 1)
        start = Switch(request_id, facts(ALICE), PowerAction.START)
        assert (await power.switch(w.ctx, start)).code == "overspend_unconfirmed"
        assert (await w.decide(one.id, BOB)).code == "approved"
        await w.run(90, 15)
        assert (await session_of(w)).state is SessionState.RUNNING


async def test_a_place_that_the_policy_no_longer_lists_is_not_read_for_a_higher_rate(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, checkpointed(w) as (shelf, _):
        shelf.put("run/step-10/model.pt", 1_000, w.clock.now())
        w.tune(checkpoint_places=())
        before = len(shelf.asked)
        await raised(w)
        w.clock.advance(60)
        await overspend.overspend_due(w.ctx)
        assert len(shelf.asked) == before
        assert (await row_of(w)).wanted is None  # An unverified checkpoint keeps the instance running.


async def test_an_unverified_checkpoint_keeps_it_running_until_its_agent_has_saved(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, listening(w), checkpointed(w) as (shelf, _):
        await pass_time(w, 200)
        await raised(w)
        for _ in range(3):
            await pass_time(w, 100)
            await overspend.overspend_due(w.ctx)
        assert (await row_of(w)).wanted is None
        assert agent(w).asks == ("save", "upload")
        assert len([e for e in (await w.books()).events if e.kind == "spend.saving"]) == 1
        await lowered(w, "0.8")
        await pass_time(w, 100)
        assert agent(w).asks == ()
        await raised(w, DEARER, DEARER)
        shelf.put("run/step-99999999/model.pt", 1_000, w.clock.now())
        await overspend.overspend_due(w.ctx)
        assert (await row_of(w)).wanted == "stop"


async def test_the_owner_stops_it_without_a_checkpoint_and_the_approval_starts_it_again(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(4))
    await raised(w)
    (one,) = await asked(w)
    w.clock.advance(120)
    await overspend.overspend_due(w.ctx)
    assert (await row_of(w)).wanted is None  # Nothing says that its data is anywhere else.
    w.clock.advance(1)
    assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.STOP))).code == "power_action"
    await w.run(60, 15)
    assert (await session_of(w)).state is SessionState.STOPPED
    assert (await w.decide(one.id, BOB)).code == "approved"
    await w.run(90, 15)
    assert (await session_of(w)).state is SessionState.RUNNING


async def test_a_stopped_machine_above_the_approved_rate_starts_only_when_that_is_approved(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(4))
    row = await row_of(w)
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, DEARER)
    await reconcile.observe(w.ctx, "vast")
    assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.STOP))).code == "power_action"
    await w.run(60, 15)
    start = Switch(request_id, facts(ALICE), PowerAction.START)
    refused = await power.switch(w.ctx, start)
    assert (refused.code, "above the approved" in refused.sentence) == ("overspend_unconfirmed", True)
    assert await overspend.overspend_due(w.ctx) == 1
    assert await overspend.overspend_due(w.ctx) == 0
    (one,) = await asked(w)
    assert one.reason.endswith("Until then it can't start.")
    assert (await w.decide(one.id, BOB)).code == "approved"
    await w.run(60, 15)
    # Its owner stopped it before anybody asked, so nobody else starts it.
    assert (await session_of(w)).state is SessionState.STOPPED
    assert (await power.switch(w.ctx, start)).code == "power_action"
    await w.run(60, 15)
    assert (await session_of(w)).state is SessionState.RUNNING


@pytest.mark.parametrize("cloud", ["vast", "tensordock"])
@pytest.mark.slow
async def test_a_rejected_rate_gives_an_unverified_checkpoint_its_time(
    sqlite_db: Database, clock: SteppedClock, cloud: str
) -> None:
    async with checked_world(sqlite_db, clock) as w, checkpointed(w, cloud):
        if cloud == "vast":
            await raised(w)
        else:
            await higher(w)
        (one,) = await asked(w)
        assert (await w.decide(one.id, BOB, "reject", reason="too dear")).code == "rejected"
        await w.run(w.ctx.policy.checkpoint_save_s - 60, 60)
        assert ((await row_of(w)).checkpoint_step, len(w.alive())) == (CheckpointStep.SAVING, 1)
        await w.run(240, 60)
        # Then its disk is kept, or it is held as long as was reserved.
        assert ((await row_of(w)).checkpoint_step, len(w.alive())) == (CheckpointStep.HELD, 1)


async def test_the_earlier_end_leaves_a_checkpoint_hold_its_time_at_the_new_rate(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, checkpointed(w, "tensordock"):
        before = await end_of(w)
        for _ in range(4):
            await higher(w)
        row, (grant,) = await row_of(w), (await w.books()).grants
        assert await end_of(w) < before
        left_usd = grant.total_cap_usd - await spent_of(w) - row.price_usd_h * Decimal(str(await end_of(w)))
        assert row.hold_s == w.ctx.policy.checkpoint_hold_s
        assert abs(left_usd - row.price_usd_h * row.hold_s / 3600) < Decimal("0.01")


async def higher(w: World) -> None:
    """A cloud without a control for prices bills more from now on."""
    row = await row_of(w)
    cloud = w.clouds[row.cloud]
    (machine,) = cloud.account.instances.values()  # type: ignore[attr-defined] # Every sandbox has its own account.
    machine.compute_usd_h *= Decimal("1.2")
    machine.meter.change("gpu", w.clock.now(), machine.compute_usd_h)
    await reconcile.observe(w.ctx, row.cloud)
    await overspend.overspend_due(w.ctx)


async def test_the_new_rate_is_booked_from_when_it_changed(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(4))
    await w.run(3000, 600)
    await raised(w, MUCH_DEARER)
    changed_usd, new_usd_h = await spent_of(w), (await row_of(w)).price_usd_h
    await w.run(1800, 600)
    assert len(w.alive()) == 1
    assert abs(await spent_of(w) - changed_usd - new_usd_h / 2) < Decimal("0.001")
    await metering.accrue_due(w.ctx)
    async with w.ctx.db.read() as tx:
        booked = await accrued_of_session(tx, (await session_of(w)).id)
    assert booked > 0
    assert abs(await spent_of(w) - w.bill()) < Decimal("0.002")
    await w.end((await w.books()).requests[0].id)
    await w.run(120, 15)
    async with w.ctx.db.read() as tx:
        booked = await accrued_of_session(tx, (await session_of(w)).id)
    assert abs(booked - w.bill()) < Decimal("0.002")
