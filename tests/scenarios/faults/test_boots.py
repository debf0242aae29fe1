"""Instances that never get ready, or say that they are before they can be reached."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from bot.services.sessions import overspend
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.queries.session_costs import accrued_of_session
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.matrix import on_clouds
from tests.support.world import World

DEADLINE_S = 900


@on_clouds(terminate=True)
async def test_what_never_boots_is_ended_booked_and_replaced_from_the_same_approval(w: World, cloud: str) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.approved(candidates=(cloud,))
    w.arm("never_boots", cloud)
    await w.settle()
    sent_at = (await w.view(request_id)).instances[0].sent_at
    patience_s = w.ctx.providers[cloud].capabilities.boot_deadline_s or DEADLINE_S
    await w.run(patience_s - 60, 60)
    assert [i.state for i in (await w.view(request_id)).instances] == [InstanceState.LIVE]
    await w.run(300, 30)
    view = await w.view(request_id)
    first, second = view.instances
    assert (first.state, first.outcome_code) == (InstanceState.GONE, "boot_timeout")
    assert f"not reachable within {patience_s // 60} minutes" in first.outcome
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert w.alive() == [second.name]
    # What the stuck boot took, in money and in time, is missing from the replacement's share.
    approved, replacing = sorted((await w.books()).grants, key=lambda grant: grant.kind)
    assert replacing.kind == "replace"
    assert replacing.total_cap_usd < approved.total_cap_usd
    assert Decimal(replacing.hours) < Decimal(approved.hours)
    assert sent_at is not None
    assert view.session.deadline == sent_at + timedelta(hours=2)


async def test_a_cloud_that_boots_for_longer_gets_the_time_it_says(w: World) -> None:
    w.boots_in(1500)
    request_id = await w.approved(candidates=("lambda",))
    await w.run(1650, 50)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert [i.outcome_code for i in view.instances] == [""]


async def test_without_replacements_what_never_boots_is_asked_again(w: World) -> None:
    w.tune(replacements=0)
    request_id = await w.approved(candidates=("vast",))
    w.arm("never_boots", "vast")
    await w.settle()
    await w.run(DEADLINE_S + 240, 30)
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "not reachable" in view.request.outcome
    assert view.session is not None
    assert (view.session.state, view.session.deadline) == (SessionState.QUEUED, None)
    # The machine that failed is not offered again.
    failed = view.instances[0].machine_id
    assert failed in view.request.failed_machines
    assert failed not in {option.offer["machine_id"] for option in view.options}


async def test_every_machine_that_failed_is_left_out_when_it_is_asked_again(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("boot_error", "vast", times=2)
    await w.settle()
    await w.run(400, 40)
    view = await w.view(request_id)
    first, second = (row.machine_id for row in view.instances)
    assert view.request.quote_version == 2
    assert view.request.failed_machines == [first, second]
    assert not {first, second} & {option.offer["machine_id"] for option in view.options}


@pytest.mark.parametrize("broken", ["boot_error", "pull_error"])
async def test_a_reported_failure_ends_the_boot_at_once(w: World, broken: str) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm(broken, "vast")
    await w.settle()
    await w.run(120, 15)
    first = (await w.view(request_id)).instances[0]
    assert (first.state, first.outcome_code) == (InstanceState.GONE, "broken")


async def test_a_machine_that_goes_offline_during_the_boot_is_ended(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("running_before_reachable", "vast", after_s=600)
    await w.settle()
    row = (await w.view(request_id)).instances[0]
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "offline")
    await w.run(120, 15)
    first = (await w.view(request_id)).instances[0]
    assert (first.state, first.outcome_code) == (InstanceState.GONE, "broken")
    assert "lost contact" in first.outcome


@on_clouds(ssh=True)
async def test_running_is_not_ready_before_it_can_be_reached(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("running_before_reachable", cloud, after_s=120)
    await w.settle()
    await w.run(90, 15)
    view = await w.view(request_id)
    assert view.session is not None
    assert (view.instances[0].status, view.session.state) == ("running", SessionState.PROVISIONING)
    assert "session.ready" not in w.board.kinds()
    await w.run(60, 15)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert "session.ready" in w.board.kinds(view.session.id)


async def test_a_status_that_is_missing_at_first_is_only_a_slow_boot(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("null_status", "vast", after_s=60)
    await w.settle()
    await w.run(120, 15)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING


@on_clouds(free=False)
async def test_a_rate_above_the_cap_ends_the_instance_and_is_asked_again(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("price_higher_than_quoted", cloud, factor=1.5)
    await w.settle()
    await w.run(150, 15)
    view = await w.view(request_id)
    assert [i.outcome_code for i in view.instances] == ["billed_above_cap"]
    assert [i.state for i in view.instances] == [InstanceState.GONE]
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "above the approved" in view.request.outcome
    assert view.session is not None
    assert view.session.state is SessionState.QUEUED
    assert w.alive() == []
    # It was billed at the higher rate while it existed, and that is what is booked.
    async with w.ctx.db.read() as tx:
        booked = await accrued_of_session(tx, view.session.id)
    assert abs(booked - w.bill()) <= Decimal("0.01")


async def test_a_rate_inside_the_tolerance_is_kept_and_booked(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("price_higher_than_quoted", "vast", factor=1.05)
    await w.settle()
    await w.run(60, 15)
    view = await w.view(request_id)
    row, option = view.instances[0], view.options[0]
    assert row.state is InstanceState.LIVE
    assert row.price_usd_h > option.price_usd_h


async def test_a_rate_that_rises_above_the_cap_later_is_asked_about_and_ends_nothing(w: World) -> None:
    await w.running(candidates=("vast",))
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    (contract,) = vast.account.instances.values()
    contract.gpu_usd_h *= 2
    contract.meter.start("gpu", w.clock.now(), contract.gpu_usd_h)
    await w.run(150, 15)
    await overspend.overspend_due(w.ctx)
    (question,) = [one for one in (await w.books()).requests if one.kind == "overspend"]
    assert (question.state, "above the approved" in question.reason) == (RequestState.PENDING, True)
    view = await w.view(str(question.parent_id))
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert [i.state for i in view.instances] == [InstanceState.LIVE]
    assert "session.interrupted" not in w.board.kinds(view.session.id)
