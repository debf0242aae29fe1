"""What ran before a stop is booked at the stop, once, however often the instance is started again."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.instances.power import PowerAction
from bot.services.billing import metering
from bot.services.instances import power
from bot.services.runtime.commands import Switch
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.session_costs import booked
from tests.support.world import ALICE, World, facts


async def only(w: World) -> Instance:
    (row,) = (await w.books()).instances
    return row


async def order(w: World, request_id: str, what: PowerAction) -> None:
    """Order a stop or a start; the cloud has carried it out, and a listing has shown it, half a minute later."""
    assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), what))).ok
    await w.run(30, 5)


async def gpu_usd(w: World) -> Decimal:
    """What is booked of the GPU."""
    entries = (await w.books()).entries
    return sum((e.amount_usd for e in entries if e.kind == "accrue" and e.component == "gpu"), Decimal(0))


async def due_usd(w: World) -> Decimal:
    """What the instance has cost that nothing books yet."""
    row = await only(w)
    async with w.ctx.db.read() as tx:
        return metering.running_usd(row, await booked(tx, row), w.clock.now(), metering.rule_of(w.ctx, row))


@pytest.mark.both_databases
@pytest.mark.parametrize("cloud", ["vast", "runpod"])
@pytest.mark.slow
async def test_what_ran_before_a_stop_is_booked_at_the_stop(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,), hours=Decimal(9))
    await w.run(1500, 300)
    assert await gpu_usd(w) == 0
    await order(w, request_id, PowerAction.STOP)
    row = await only(w)
    assert row.state is InstanceState.STOPPED
    gpu = sum((i.gpu_usd for i in w.instances()), Decimal(0))
    assert gpu > 0
    assert abs(await gpu_usd(w) - gpu) <= gpu / 50
    (part,) = [e for e in (await w.books()).entries if "/gpu/stop-" in e.key]
    assert part.at == row.billing_until
    before = await gpu_usd(w)
    await w.run(2 * 3600, 1800)
    assert await gpu_usd(w) == before
    assert await due_usd(w) < row.price_usd_h * 3  # The disk alone.


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
@pytest.mark.slow
async def test_hours_stops_and_the_rest_add_up_to_the_bill(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,), hours=Decimal(11))
    for ran_s in (1000, 1300, 4000, 900):
        await w.run(ran_s, 300)
        await order(w, request_id, PowerAction.STOP)
        await w.run(700, 350)
        await order(w, request_id, PowerAction.START)
        assert (await only(w)).state is InstanceState.LIVE
    await w.run(2000, 500)
    gpu = sum((i.gpu_usd for i in w.instances()), Decimal(0))
    due, before = await due_usd(w), await gpu_usd(w)
    assert abs(before + due - gpu) <= gpu / 50 + (await only(w)).storage_usd_h * 4
    await w.end(request_id)
    await w.run(150, 15)
    assert (await only(w)).state is InstanceState.GONE
    gpu = sum((i.gpu_usd for i in w.instances()), Decimal(0))
    assert abs(await gpu_usd(w) - gpu) <= gpu / 50
    assert len([e for e in (await w.books()).entries if "/gpu/stop-" in e.key]) == 4
