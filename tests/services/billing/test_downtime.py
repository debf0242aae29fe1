"""What happens while the service is down is booked as the clouds bill it, and never less."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from bot.services.billing import true_up
from bot.services.instances import reconcile
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.matrix import on_clouds
from tests.support.world import World, checked_world

HOUR_S = 3600.0


@pytest.fixture
async def slow(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service whose clouds take as long to boot as the real ones."""
    timing = replace(SandboxTiming.quick(), boot_s=120.0)
    async with checked_world(db, clock, sandbox=timing) as built:
        built.tune(broken_grace_s=24 * HOUR_S)  # What is broken stays, so that its bill can be watched.
        yield built


async def booting(w: World, cloud: str, hours: int = 10) -> str:
    """A request whose instance the cloud has confirmed, and which does not run yet."""
    request_id = await w.approved(candidates=(cloud,), hours=Decimal(hours))
    await w.settle()
    await w.run(110, 10)
    row = await only(w)
    assert (row.state, row.reachable_at) == (InstanceState.LIVE, None)
    return request_id


async def only(w: World) -> Instance:
    return (await w.books()).instances[0]


async def booked(w: World) -> Decimal:
    spent = ("accrue", "loss")
    return sum((entry.amount_usd for entry in (await w.books()).entries if entry.kind in spent), Decimal(0))


async def ended(w: World, request_id: str) -> None:
    await w.end(request_id)
    await w.run(150, 15)
    assert (await only(w)).state is InstanceState.GONE


async def agrees(w: World) -> None:
    """What is booked is within one per cent of the bill."""
    bill = w.bill()
    assert bill > 0
    assert abs(await booked(w) - bill) <= bill / 100, (await booked(w), bill)


@on_clouds(free=False)
@pytest.mark.slow
async def test_a_start_during_downtime_is_booked_from_then(slow: World, cloud: str) -> None:
    w = slow
    request_id = await booting(w, cloud)
    w.clock.advance(5 * HOUR_S)
    await w.run(60, 15)
    assert (await only(w)).reachable_at is not None
    await ended(w, request_id)
    await agrees(w)
    assert await booked(w) >= w.bill() * Decimal("0.9999")


@on_clouds(free=False)
async def test_an_end_that_comes_before_anybody_looks_is_booked_too(slow: World, cloud: str) -> None:
    w = slow
    request_id = await booting(w, cloud, 12)
    w.clock.advance(11 * HOUR_S)
    await w.end(request_id)
    await w.run(150, 15)
    assert (await only(w)).state is InstanceState.GONE
    await agrees(w)


@pytest.mark.parametrize("down_s", [15.0, 70.0, 1200.0])
async def test_a_boot_that_ends_during_downtime_is_booked_from_when_the_cloud_says(slow: World, down_s: float) -> None:
    w = slow
    request_id = await booting(w, "vast")
    w.clock.advance(down_s)
    await ended(w, request_id)
    await agrees(w)


async def test_where_the_cloud_does_not_say_it_is_booked_from_the_last_look_that_showed_it_unbilled(
    slow: World,
) -> None:
    w = slow
    w.arm("uptime_hidden", "vast")
    request_id = await booting(w, "vast")
    w.clock.advance(5 * HOUR_S)
    await w.run(60, 15)
    await ended(w, request_id)
    await agrees(w)
    assert await booked(w) >= w.bill()


async def test_a_machine_that_vanished_while_nobody_looked_is_taken_to_have_run(slow: World) -> None:
    w = slow
    await booting(w, "vast")
    row = await only(w)
    assert row.ref is not None
    w.clock.advance(5 * HOUR_S)
    await w.ctx.providers["vast"].terminate(row.ref)
    w.clock.advance(10)
    await w.run(150, 15)
    assert (await only(w)).outcome_code == "lost"
    await agrees(w)


@pytest.mark.slow
async def test_a_host_that_is_away_costs_nothing(slow: World) -> None:
    w = slow
    request_id = await booting(w, "vast")
    await w.run(HOUR_S, 300)
    row = await only(w)
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "offline")
    await reconcile.observe(w.ctx, "vast")
    await w.run(3 * HOUR_S, 300)
    row = await only(w)
    assert row.storage_until is not None
    before = await booked(w)
    await w.run(HOUR_S, 300)
    assert await booked(w) == before
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "online")
    await reconcile.observe(w.ctx, "vast")
    row = await only(w)
    assert (row.storage_until, row.billing_until) == (None, None)
    await w.run(2 * HOUR_S, 300)
    await ended(w, request_id)
    await agrees(w)


@pytest.mark.parametrize(("cloud", "how"), [("tensordock", "error"), ("lambda", "unhealthy")])
@pytest.mark.slow
async def test_a_machine_that_fails_is_booked_on_where_the_cloud_bills_on(slow: World, cloud: str, how: str) -> None:
    w = slow
    request_id = await booting(w, cloud)
    await w.run(HOUR_S, 300)
    row = await only(w)
    assert row.ref is not None
    w.clouds[cloud].disturb(row.ref, how)
    await w.run(3 * HOUR_S, 300)
    await ended(w, request_id)
    await agrees(w)


@pytest.mark.slow
async def test_a_stopped_machine_is_booked_on_where_its_gpu_stays_reserved(slow: World) -> None:
    w = slow
    request_id = await booting(w, "tensordock")
    await w.run(HOUR_S, 300)
    row = await only(w)
    assert row.ref is not None
    await w.ctx.providers["tensordock"].stop(row.ref)
    await w.run(3 * HOUR_S, 300)
    assert (await only(w)).status == "stopped"
    await ended(w, request_id)
    await agrees(w)


@pytest.mark.parametrize("cloud", ["runpod", "vast"])
async def test_a_bill_takes_back_what_was_booked_for_a_machine_that_had_ended_unseen(slow: World, cloud: str) -> None:
    w = slow
    await booting(w, cloud)
    await w.run(60, 15)
    row = await only(w)
    assert row.ref is not None
    w.clock.advance(HOUR_S)
    await w.ctx.providers[cloud].terminate(row.ref)
    w.clock.advance(7 * HOUR_S)
    await w.run(240, 15)
    assert (await only(w)).outcome_code == "lost"
    assert await booked(w) > 2 * w.bill()
    assert await true_up.reconcile_due(w.ctx) == 0, "late lines may follow"
    w.clock.advance(48 * HOUR_S)
    assert await true_up.reconcile_due(w.ctx) > 0
    (session,) = (await w.books()).sessions
    accrued_usd = (await w.session(session.id)).accrued_usd
    assert abs(accrued_usd - w.bill()) <= w.bill() / 100
    kinds = [one.kind for one in (await w.books()).notifications]
    assert NotificationKind.OPERATOR_PAGE not in kinds
