"""Creates whose outcome is unclear, refused or late: never two, never one that nobody knows."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from bot.services.instances import launch, reconcile, unknown_outcome
from bot.services.instances.unknown_outcome import quarantine
from ledger.kernel.states import GrantState, InstanceState, OrphanState, RequestState, SessionState
from ledger.queries.views import RequestView
from providers.gpus.constraint import GpuConstraint
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.matrix import every_cloud, on_clouds
from tests.support.proxy_provider import alive, dying
from tests.support.world import BOB, World


def states(view: RequestView) -> list[InstanceState]:
    return [instance.state for instance in view.instances]


def session_state(view: RequestView) -> SessionState:
    assert view.session is not None
    return view.session.state


@every_cloud
@pytest.mark.parametrize("fault", ["create_lost_reply", "create_503_after"])
async def test_a_create_whose_answer_is_lost_is_adopted(w: World, cloud: str, fault: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm(fault, cloud)
    assert await launch.send_due(w.ctx) == 1
    assert states(await w.view(request_id)) == [InstanceState.UNKNOWN]
    await w.run(60, 15)
    view = await w.view(request_id)
    assert session_state(view) is SessionState.RUNNING
    assert w.alive() == [view.instances[0].name]
    assert len(w.engine.creates) == 1


@every_cloud
async def test_a_create_that_lands_within_the_quarantine_is_adopted(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("create_lands_late", cloud, after_s=200)
    await w.settle()
    await w.run(180, 30)
    assert w.alive() == []
    assert states(await w.view(request_id)) == [InstanceState.UNKNOWN]
    await w.run(90, 30)
    view = await w.view(request_id)
    assert session_state(view) is SessionState.RUNNING
    assert w.alive() == [view.instances[0].name]
    assert len(w.engine.creates) == 1


@on_clouds(terminate=True)
async def test_a_create_that_lands_after_the_quarantine_is_destroyed_and_booked_as_a_loss(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("create_lands_late", cloud, after_s=400)
    await w.settle()
    await w.run(330, 30)
    view = await w.view(request_id)
    assert states(view) == [InstanceState.TOMBSTONE]
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "never confirmed the launch" in view.request.outcome
    assert session_state(view) is SessionState.QUEUED
    assert [g.state for g in (await w.books()).grants] == [GrantState.VOID]
    assert "request.result" in w.board.kinds(request_id)
    await w.run(80, 10)
    assert [instance.alive for instance in w.instances()] == [True]
    (stray,) = (await w.books()).orphans
    assert stray.state in (OrphanState.SEEN, OrphanState.CONDEMNED)
    await w.run(120, 10)
    books = await w.books()
    assert [stray.state for stray in books.orphans] == [OrphanState.GONE]
    assert w.alive() == []
    losses = sum((entry.amount_usd for entry in books.entries if entry.kind == "loss"), Decimal(0))
    assert abs(losses - w.bill()) <= Decimal("0.01")
    assert "orphan.found" in w.board.kinds()
    assert len(w.engine.creates) == 1
    # The old approval is spent: only a new one buys again.
    assert (await w.decide(request_id, BOB)).code == "approved"
    await w.run(60, 15)
    assert session_state(await w.view(request_id)) is SessionState.RUNNING
    assert len(w.alive()) == 1


async def test_a_second_instance_of_one_create_is_destroyed_and_the_first_is_kept(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    kept = (await w.view(request_id)).instances[0]
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    body = {"label": kept.name, "image": "x", "disk": 50}
    twin = vast.account.rent(next(vast.account.market.slices()), body)
    await w.run(30, 15)
    assert len(w.alive()) == 2
    await w.run(150, 15)
    assert {i.ref for i in w.instances() if i.alive} == {kept.ref}
    (stray,) = (await w.books()).orphans
    assert (stray.ref, stray.state) == (str(twin.ref), OrphanState.GONE)
    assert "second instance" in stray.reason


@on_clouds(VARIED=True)
async def test_a_sold_out_offer_leads_to_the_next_one_under_the_same_grant(w: World, cloud: str) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.approved(candidates=(cloud,))
    w.arm("create_stale_offer", cloud)
    await w.settle()
    view = await w.view(request_id)
    assert states(view) == [InstanceState.REJECTED, InstanceState.LIVE]
    assert len({instance.grant_id for instance in view.instances}) == 1
    assert view.instances[0].outcome_code == "no_capacity"
    assert len(w.engine.creates) == 2
    assert w.alive() == [view.instances[1].name]


async def test_without_failover_a_sold_out_offer_is_asked_again(w: World) -> None:
    w.tune(failover=False)
    request_id = await w.approved()
    w.arm("create_stale_offer")
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "doesn't allow a launch of another offer" in view.request.outcome
    assert states(view) == [InstanceState.REJECTED]


@on_clouds(VARIED=True)
@pytest.mark.parametrize("fault", ["create_auth", "create_no_credit"])
async def test_trouble_with_one_account_leads_to_another_cloud(w: World, cloud: str, fault: str) -> None:
    # Each of these clouds sells this GPU, alone; the other one's offers must lie inside the cap of the approved one.
    w.tune(price_tolerance=Decimal(5), options_shown=50)
    reply = await w.ask(gpu=GpuConstraint(("A6000",), 1, 1))
    request_id = str(reply.data["request_id"])
    await w.settle()
    options = (await w.view(request_id)).options
    rank = next(option.rank for option in options if option.cloud == cloud)
    await w.decide(request_id, rank=rank)
    w.arm(fault, cloud)
    await w.settle()
    view = await w.view(request_id)
    assert states(view) == [InstanceState.REJECTED, InstanceState.LIVE]
    first, second = view.instances
    assert first.cloud == cloud
    assert second.cloud != cloud


@every_cloud
async def test_a_rate_limit_on_the_create_is_waited_out_with_a_new_row(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("create_429", cloud, retry_after=7)
    await w.settle()
    first, second = (await w.view(request_id)).instances
    assert (first.state, first.outcome_code) == (InstanceState.REJECTED, "rate_limited")
    assert second.state is InstanceState.READY
    await w.run(30, 5)
    view = await w.view(request_id)
    assert states(view) == [InstanceState.REJECTED, InstanceState.LIVE]
    assert (view.request.state, view.request.quote_version) == (RequestState.APPROVED, 1)
    assert (second.grant_id, second.offer["key"]) == (first.grant_id, first.offer["key"])
    assert second.label != first.label
    assert len(w.engine.creates) == 2
    assert w.alive() == [second.name]


@pytest.mark.parametrize("fault", ["search_429", "create_429_text"])
async def test_one_rate_limit_is_waited_out_however_late_the_create_is_sent(w: World, fault: str) -> None:
    """No process worked for minutes after the approval: the wait begins with the first refusal."""
    request_id = await w.approved(candidates=("vast",))
    w.clock.advance(400)
    w.arm(fault, "vast", retry_after=7)
    await w.settle()
    assert (await w.view(request_id)).request.state is RequestState.APPROVED
    await w.run(30, 5)
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.APPROVED, 1)
    assert states(view)[-1] is InstanceState.LIVE


@on_clouds(VARIED=True)
async def test_a_rate_limit_that_outlasts_the_patience_of_a_launch_leads_to_another_cloud(w: World, cloud: str) -> None:
    w.tune(price_tolerance=Decimal(5), options_shown=50)
    reply = await w.ask(gpu=GpuConstraint(("A6000",), 1, 1))
    request_id = str(reply.data["request_id"])
    await w.settle()
    rank = next(option.rank for option in (await w.view(request_id)).options if option.cloud == cloud)
    await w.decide(request_id, rank=rank)
    w.arm("create_429", cloud, times=None, retry_after=15)
    await w.run(75, 5)
    view = await w.view(request_id)
    assert states(view)[-1] is InstanceState.LIVE
    assert {(row.state, row.cloud) for row in view.instances[:-1]} == {(InstanceState.REJECTED, cloud)}
    assert view.instances[-1].cloud != cloud
    assert len({row.offer["key"] for row in view.instances[:-1]}) == 1


async def test_a_rate_limit_that_was_waited_out_does_not_rule_out_the_other_offers_of_its_cloud(w: World) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_429_text", "vast")
    await w.settle()
    w.arm("create_stale_offer", "vast")
    await w.run(30, 5)
    view = await w.view(request_id)
    assert [row.outcome_code for row in view.instances] == ["rate_limited", "no_capacity", ""]
    assert states(view)[-1] is InstanceState.LIVE


async def test_an_offer_that_its_cloud_calls_invalid_drops_out_alone(w: World) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_bad_args", "vast")
    await w.settle()
    view = await w.view(request_id)
    assert [row.outcome_code for row in view.instances] == ["invalid_spec", ""]
    assert states(view) == [InstanceState.REJECTED, InstanceState.LIVE]


@every_cloud
@pytest.mark.parametrize("fault", ["create_auth", "create_no_credit"])
async def test_trouble_with_the_only_account_is_asked_again(w: World, cloud: str, fault: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm(fault, cloud)
    await w.settle()
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert view.request.quote_version == 2
    assert view.request.outcome
    assert states(view) == [InstanceState.REJECTED]
    assert session_state(view) is SessionState.QUEUED
    assert w.alive() == []


@pytest.mark.parametrize(("cloud", "fault"), [("vast", "search_429"), ("runpod", "rate_limited")])
async def test_a_rate_limit_before_the_send_is_waited_out(w: World, cloud: str, fault: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm(fault, cloud, retry_after=7)
    assert await launch.send_due(w.ctx) == 1
    assert states(await w.view(request_id)) == [InstanceState.READY]
    assert await launch.send_due(w.ctx) == 0
    w.engine.faults.disarm()
    w.clock.advance(8)
    assert await launch.send_due(w.ctx) == 1
    assert states(await w.view(request_id)) == [InstanceState.LIVE]
    assert len(w.engine.creates) == 1


async def test_a_rate_limit_that_does_not_end_is_given_up(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("search_429", "vast", times=None)
    await launch.send_due(w.ctx)
    w.clock.advance(61)
    await launch.send_due(w.ctx)
    view = await w.view(request_id)
    assert states(view) == [InstanceState.REJECTED]
    assert view.instances[0].outcome_code == "rate_limited"
    assert view.request.state is RequestState.QUOTING


async def test_a_cloud_that_cannot_be_priced_before_the_send_is_left(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("search_503", "vast", times=3)
    await w.settle()
    view = await w.view(request_id)
    assert view.instances[0].outcome_code == "unavailable"
    assert w.engine.creates[0].name != view.instances[0].name


@every_cloud
async def test_a_process_that_dies_before_the_call_never_leads_to_a_second_one(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.wrap(cloud, dying(after=False))
    with pytest.raises(asyncio.CancelledError):
        await launch.send_due(w.ctx)
    w.wrap(cloud, alive)
    assert states(await w.view(request_id)) == [InstanceState.SENDING]
    lease_s = launch.create_lease(w.ctx, w.ctx.providers[cloud].capabilities).total_seconds()
    await w.run(lease_s - 10, 30)
    assert states(await w.view(request_id)) == [InstanceState.SENDING]
    await w.run(30, 15)
    assert states(await w.view(request_id)) == [InstanceState.UNKNOWN]
    await w.run(quarantine(w.ctx.providers[cloud].capabilities, w.ctx.timing).total_seconds() - 100, 30)
    view = await w.view(request_id)
    assert states(view) == [InstanceState.TOMBSTONE]
    assert view.request.state is RequestState.PENDING
    assert w.engine.creates == []


@every_cloud
async def test_a_process_that_dies_after_the_call_leaves_one_that_is_adopted(w: World, cloud: str) -> None:
    w.boots_in(120)
    request_id = await w.approved(candidates=(cloud,))
    w.wrap(cloud, dying(after=True))
    with pytest.raises(asyncio.CancelledError):
        await launch.send_due(w.ctx)
    w.wrap(cloud, alive)
    await w.run(launch.create_lease(w.ctx, w.ctx.providers[cloud].capabilities).total_seconds() + 33, 30)
    view = await w.view(request_id)
    assert session_state(view) is SessionState.RUNNING
    assert len(w.engine.creates) == 1
    assert w.alive() == [view.instances[0].name]


@pytest.mark.parametrize("cloud", ["vast", "tensordock"])
async def test_what_is_listed_before_a_dead_process_gives_its_row_back_is_on_record_when_it_vanishes(
    w: World, cloud: str
) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.wrap(cloud, dying(after=True))
    with pytest.raises(asyncio.CancelledError):
        await launch.send_due(w.ctx)
    w.wrap(cloud, alive)
    w.clock.advance(20)
    await reconcile.observe(w.ctx, cloud)
    (row,) = (await w.view(request_id)).instances
    assert (row.state, w.alive()) == (InstanceState.LIVE, [row.name])
    assert row.ref is not None
    w.clock.advance(60)
    w.clouds[cloud].disturb(row.ref, "vanish")
    await w.run(400, 30)
    first = (await w.view(request_id)).instances[0]
    assert (first.state, first.ref, first.outcome_code) == (InstanceState.GONE, row.ref, "lost")
    booked = sum(one.amount_usd for one in (await w.books()).entries if one.instance_id == row.id)
    assert booked > 0


async def test_nothing_is_sent_to_an_account_other_than_the_one_that_was_asked(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.use({name: provider for name, provider in w.ctx.providers.items() if name != "vast"})
    await w.settle()
    view = await w.view(request_id)
    assert view.instances[0].outcome_code == "unsupported"
    assert w.engine.creates == []


async def test_an_unclear_create_waits_for_the_account_that_can_tell(w: World) -> None:
    w.boots_in(120)
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_lost_reply", "vast")
    await launch.send_due(w.ctx)
    there = w.ctx.providers
    w.use({name: provider for name, provider in there.items() if name != "vast"})
    await w.run(400, 100)
    view = await w.view(request_id)
    assert states(view) == [InstanceState.UNKNOWN]
    assert "operator.page" in w.board.kinds(view.instances[0].id)
    w.use(there)
    await w.run(60, 15)
    assert session_state(await w.view(request_id)) is SessionState.RUNNING


async def test_an_unclear_create_is_not_given_up_while_the_cloud_cannot_be_listed(w: World) -> None:
    w.boots_in(120)
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_lost_reply", "vast")
    w.arm("list_503", "vast", times=None)
    await launch.send_due(w.ctx)
    await w.run(400, 100)
    assert states(await w.view(request_id)) == [InstanceState.UNKNOWN]
    w.engine.faults.disarm()
    await w.run(60, 15)
    assert session_state(await w.view(request_id)) is SessionState.RUNNING


async def test_a_sweep_adopts_an_unclear_create_before_the_search_does(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_lost_reply", "vast")
    await launch.send_due(w.ctx)
    await reconcile.observe(w.ctx, "vast")
    assert states(await w.view(request_id)) == [InstanceState.LIVE]
    assert await unknown_outcome.resolve_due(w.ctx) == 0
