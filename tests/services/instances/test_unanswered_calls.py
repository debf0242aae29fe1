"""What a call to end an instance shows where its reply was lost or wrong, beside heartbeats, stops and late proofs."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import update

from bot.rules.billing.true_up import SETTLED
from bot.services.billing import metering, true_up
from bot.services.instances import termination
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.entry_kind import USED
from ledger.kernel.states import InstanceState
from ledger.models import Instance, Node
from tests.services.instances.test_lost import in_use, later, lose, off, only
from tests.services.instances.test_undated_ends import ordered_late
from tests.support.world import World


async def report(w: World, row: Instance) -> None:
    """Its agent checks in now."""
    now = w.clock.now()
    async with w.ctx.db.write() as tx:
        reported = await tx.scalar(
            update(Node).where(Node.instance_id == row.id).values(at=now).returning(Node.instance_id)
        )
        if reported is None:
            tx.add(Node(instance_id=row.id, session_id=row.session_id, token_hash="0" * 64, made_at=now, at=now, seq=5))


async def report_for_hours(w: World, row: Instance, hours: int) -> None:
    for _ in range(6 * hours):
        w.clock.advance(600)
        await metering.accrue_due(w.ctx)
        await report(w, row)


@pytest.mark.parametrize("days", [29, 31])
async def test_an_end_that_is_proved_after_a_month_waits_for_its_bill(bare: World, days: int) -> None:
    """The lost call never reached the cloud, which nobody could ask meanwhile. Its bill has the whole time."""
    w = bare
    await ordered_late(w, "tensordock", retried=True)
    w.clock.advance(days * 86400)
    await metering.accrue_due(w.ctx)
    await termination.terminate_due(w.ctx)
    for _ in range(4):
        await later(w, 40, "tensordock")
    assert (await only(w)).state is InstanceState.GONE
    await true_up.reconcile_due(w.ctx)
    assert (await only(w)).unsettled_usd
    w.clock.advance((SETTLED + timedelta(hours=2)).total_seconds())
    await true_up.reconcile_due(w.ctx)
    assert (await only(w)).unsettled_usd is None
    assert abs(await off(w)) <= w.bill() / 100


@pytest.mark.parametrize("wait_s", [900, 1800])
async def test_a_stop_that_was_seen_after_the_call_is_not_booked_twice(bare: World, wait_s: int) -> None:
    w = bare
    await ordered_late(w, "vast", retried=True)
    w.clouds["vast"].disturb(str((await only(w)).ref), "offline")
    await later(w, wait_s, "vast")
    await termination.terminate_due(w.ctx)
    w.clock.advance(60)
    for _ in range(4):
        await later(w, 40, "vast")
    row = await only(w)
    assert row.ended_at is not None
    assert row.billing_from is not None
    entries = [one for one in (await w.books()).entries if one.instance_id == row.id and one.kind in USED]
    of_gpu = [one for one in entries if one.component == BookedComponent.GPU]
    booked = sum((-one.amount_usd if one.debit.startswith("payable:") else one.amount_usd for one in of_gpu), Decimal())
    hours = Decimal((row.ended_at - row.billing_from) / timedelta(hours=1))
    used = metering.gpu_rate(row.price_usd_h, row.storage_usd_h) * hours
    assert abs(booked - used) <= used / 20


@pytest.mark.parametrize("is_called_again", [True, False])
async def test_work_after_a_lost_call_is_booked(bare: World, *, is_called_again: bool) -> None:
    """The agent reported for three hours; whether listings or a second call show that it is gone changes nothing."""
    w = bare
    await ordered_late(w, "lambda", retried=True)
    await report_for_hours(w, await only(w), 3)
    worked_until = w.clock.now()
    w.clock.advance(60)
    lose(w, await only(w))
    if is_called_again:
        await termination.terminate_due(w.ctx)
    for _ in range(5):
        await later(w, 40, "lambda")
    row = await only(w)
    assert row.state is InstanceState.GONE
    assert row.ended_at is not None
    assert row.ended_at >= worked_until


async def test_work_after_an_accepted_call_that_was_not_done_is_booked(bare: World) -> None:
    w = bare
    request_id = await in_use(w, "lambda")
    w.arm("destroy_not_done", "lambda", times=1)
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    await report_for_hours(w, await only(w), 3)
    worked_until = w.clock.now()
    w.clock.advance(60)
    lose(w, await only(w))
    for _ in range(5):
        await later(w, 40, "lambda")
    row = await only(w)
    assert row.state is InstanceState.GONE
    assert row.ended_at is not None
    assert row.latest_end_at is not None
    assert worked_until <= row.ended_at <= row.latest_end_at
