"""A machine that its cloud lost: what is booked ends when it did, as far as anybody can know."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.services.audit.invariants.money import SPENT
from bot.services.billing import true_up
from bot.services.instances import reconcile, termination
from ledger.kernel.clock import Clock
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from providers.contract import Listing, Provider
from providers.errors import Unavailable
from tests.support.proxy_provider import Hiding, InFront, Silent
from tests.support.world import World


class LostReply(InFront):
    """A cloud whose first reply to a termination never arrives."""

    lost = 0

    async def terminate(self, ref: str) -> bool:
        was_there = await self.inner.terminate(ref)
        if not self.lost:
            self.lost += 1
            raise Unavailable(self.inner.name, "no reply")
        return was_there


async def in_use(w: World, cloud: str = "vast") -> str:
    """A request whose machine has worked for twenty minutes, and was looked at just now."""
    w.tune(replacements=0)
    request_id = await w.running(candidates=(cloud,), hours=Decimal(6))
    await later(w, 1200, cloud)
    return request_id


async def later(w: World, seconds: float, cloud: str = "vast") -> None:
    w.clock.advance(seconds)
    await reconcile.observe(w.ctx, cloud)


def lose(w: World, row: Instance) -> None:
    w.clouds[row.cloud].disturb(str(row.ref), "vanish")


async def only(w: World) -> Instance:
    (row,) = (await w.books()).instances
    return row


def known(w: World, row: Instance) -> tuple[Decimal, Decimal]:
    """The least and most that it can have cost, if its cloud never said what it charged."""
    silent = replace(w.ctx, providers={row.cloud: cast("Provider", Silent(w.ctx.providers[row.cloud]))})
    between = true_up.bounds(silent, row)
    assert between is not None
    return between


async def off(w: World) -> Decimal:
    """Dollars that are booked above the bill."""
    spent = [entry for entry in (await w.books()).entries if entry.kind in SPENT]
    signed = (-one.amount_usd if one.debit.startswith("payable:") else one.amount_usd for one in spent)
    return sum(signed, Decimal(0)) - w.bill()


async def test_an_end_that_is_ordered_before_the_absence_is_proved_is_booked_until_the_first_look_without_it(
    w: World,
) -> None:
    request_id = await in_use(w)
    lose(w, await only(w))
    await later(w, 5)
    first = (await only(w)).absent_at
    assert len(first) == 1
    w.arm("list_503", "vast", None)
    await later(w, 1200)
    await w.end(request_id)
    await w.tick()
    asked = await only(w)
    assert (asked.state, asked.absent_at) == (InstanceState.TERMINATING, first)
    assert asked.terminate_acked_at is not None  # Vast.ai answered that there is no such instance.
    w.engine.faults.disarm("vast")
    # Looks of before the order do not prove an end that was ordered: it takes as many after it as ever.
    await later(w, 5)
    await later(w, 40)
    assert (await only(w)).state is InstanceState.TERMINATING
    await later(w, 40)
    row = await only(w)
    assert (row.state, row.ended_at and row.ended_at.isoformat()) == (InstanceState.GONE, first[0])
    assert abs(await off(w)) <= w.bill() / 100
    assert true_up.bounds(w.ctx, row) is None


async def test_what_a_cloud_takes_the_order_for_was_there_whatever_its_listings_lacked(bare: World) -> None:
    w = bare
    request_id = await in_use(w)
    inner = w.ctx.providers["vast"]
    w.wrap("vast", lambda provider: cast("Provider", Hiding(provider)))
    await later(w, 5)
    await later(w, 40)
    assert len((await only(w)).absent_at) == 2
    w.clock.advance(600)
    await w.end(request_id)
    await w.tick()
    w.use({"vast": inner})
    for _ in range(3):
        await later(w, 40)
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, row.terminate_acked_at)
    assert abs(await off(w)) <= w.bill() / 100


@pytest.mark.parametrize("cloud", ["tensordock", "lambda"])
async def test_an_end_whose_reply_is_lost_is_booked_until_its_call(bare: World, cloud: str) -> None:
    w = bare
    request_id = await w.running(candidates=(cloud,), hours=Decimal(6))
    await w.run(600, 60)
    w.wrap(cloud, lambda inner: cast("Provider", LostReply(inner)))
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    called_at = w.clock.now()
    row = await only(w)
    assert (row.terminate_acked_at, row.terminate_called_at) == (None, called_at)
    assert w.alive() == []
    # Nothing can be asked for a while; then the cloud answers that there is no such machine.
    w.arm("list_503", cloud, None)
    w.clock.advance(300)
    await w.tick()
    assert (await only(w)).terminate_acked_at == called_at
    w.engine.faults.disarm()
    for _ in range(4):
        await later(w, 40, cloud)
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, called_at)
    assert abs(await off(w)) <= w.bill() / 100


async def test_a_cloud_that_ends_nothing_was_not_called_to_end_it(bare: World) -> None:
    w = bare
    request_id = await w.running(candidates=("kaggle",), run="python train.py")
    await w.end(request_id)
    await w.tick()
    row = await only(w)
    assert (row.state, row.terminate_called_at) == (InstanceState.TERMINATING, None)


async def test_a_call_that_certainly_had_no_effect_does_not_count_as_the_end(bare: World) -> None:
    w = bare
    request_id = await w.running(candidates=("tensordock",), hours=Decimal(6))
    await w.run(600, 60)
    w.arm("destroy_429", "tensordock", times=1)
    await w.end(request_id)
    await w.tick()
    assert (await only(w)).terminate_called_at is None
    assert len(w.alive()) == 1
    w.clock.advance(300)
    await w.tick()
    row = await only(w)
    assert row.terminate_acked_at == row.terminate_called_at == w.clock.now()


async def test_a_cloud_that_cannot_be_asked_takes_back_no_look_that_lacked_it(bare: World) -> None:
    w = bare
    await in_use(w)
    lose(w, await only(w))
    w.arm("get_503", "vast", None)
    await later(w, 5)
    first = (await only(w)).absent_at
    for _ in range(4):
        await later(w, 60)
    row = await only(w)
    assert row.state is InstanceState.LIVE
    assert row.absent_at[:1] == first
    assert len(row.absent_at) == 2
    w.engine.faults.disarm("vast")
    await later(w, 60)
    row = await only(w)
    assert (row.state, row.ended_at and row.ended_at.isoformat()) == (InstanceState.GONE, first[0])
    assert abs(await off(w)) <= w.bill() / 100
    # It went some time before the first look that lacked it, and where no bill tells when, that is a range.
    low_usd, high_usd = known(w, row)
    assert low_usd < w.bill() <= high_usd


async def test_what_nobody_saw_go_is_booked_until_the_cloud_says_so_and_its_bill_takes_that_back(bare: World) -> None:
    w = bare
    request_id = await in_use(w)
    lose(w, await only(w))
    w.arm("list_503", "vast", None)
    await later(w, 3600)
    await w.end(request_id)
    await w.tick()
    w.engine.faults.disarm("vast")
    await later(w, 5)
    await later(w, 40)
    await later(w, 40)
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, row.terminate_acked_at)
    assert await off(w) > w.bill()
    # Where no bill tells more, all of that time is uncertain.
    low_usd, high_usd = known(w, row)
    assert low_usd < w.bill() < high_usd
    w.clock.advance(timedelta(days=2, hours=1).total_seconds())
    w.use({"vast": w.ctx.providers["vast"]})
    await true_up.reconcile_due(w.ctx)
    assert abs(await off(w)) < Decimal("0.0001")


@pytest.mark.parametrize("looks", [False, True])
async def test_what_failed_while_nothing_answered_has_a_range_from_then_on(bare: World, looks: bool) -> None:
    """Its end is ordered meanwhile. Then a listing shows that it failed, or the cloud accepts the end before."""
    w = bare
    request_id = await in_use(w, "lambda")
    w.arm("list_503", "lambda", None)
    w.arm("destroy_503", "lambda", None)
    w.clock.advance(60)
    w.clouds["lambda"].disturb(str((await only(w)).ref), "preempted")
    await later(w, 1200, "lambda")
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    w.engine.faults.disarm("lambda")
    if looks:
        await later(w, 5, "lambda")
    w.clock.advance(300)
    await termination.terminate_due(w.ctx)
    for _ in range(4):
        await later(w, 400, "lambda")
    row = await only(w)
    low_usd, high_usd = known(w, row)
    assert row.state is InstanceState.GONE
    assert low_usd < w.bill() < high_usd


@pytest.mark.parametrize("what", ["preempted", "vanish"])
@pytest.mark.slow
async def test_what_is_seen_as_lost_after_a_long_outage_was_lost_at_any_time_in_it(bare: World, what: str) -> None:
    w = bare
    await in_use(w, "lambda")
    w.arm("list_503", "lambda", None)
    w.clock.advance(60)
    w.clouds["lambda"].disturb(str((await only(w)).ref), what)
    await later(w, 3600, "lambda")
    w.engine.faults.disarm("lambda")
    await later(w, 5, "lambda")
    await w.run(1800, 40)
    row = await only(w)
    low_usd, high_usd = known(w, row)
    assert row.state is InstanceState.GONE
    assert low_usd < w.bill() < high_usd


async def test_an_instance_that_works_again_after_an_outage_is_as_before(bare: World) -> None:
    w = bare
    await in_use(w, "lambda")
    w.arm("list_503", "lambda", None)
    w.clouds["lambda"].disturb(str((await only(w)).ref), "unhealthy")
    await later(w, 1200, "lambda")
    w.engine.faults.disarm("lambda")
    await later(w, 5, "lambda")
    row = await only(w)
    assert row.worked_at is not None
    assert row.trouble_at == w.clock.now()
    w.clouds["lambda"].disturb(str(row.ref), "healthy")
    await later(w, 5, "lambda")
    row = await only(w)
    assert (row.trouble_at, row.worked_at) == (None, None)


class Late(InFront):
    """A cloud whose listing is requested at `began_at` and answered once `go` is set: its turn waits for the ledger."""

    def __init__(self, inner: Provider, began_at: datetime) -> None:
        super().__init__(inner)
        self.began_at, self.go = began_at, asyncio.Event()

    async def list(self) -> Listing:
        await self.go.wait()
        return replace(await self.inner.list(), at=self.began_at)


async def test_a_listing_that_was_requested_before_the_order_does_not_date_the_end(w: World) -> None:
    request_id = await in_use(w)
    vast = w.ctx.providers["vast"]
    late = Late(vast, w.clock.now())
    w.wrap("vast", lambda _: cast("Provider", late))
    looking = asyncio.create_task(reconcile.observe(w.ctx, "vast"))
    await asyncio.sleep(0)
    w.use({**w.ctx.providers, "vast": vast})
    w.clock.advance(1200)
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []
    w.clock.advance(20)
    late.go.set()
    await looking
    assert (await only(w)).absent_at == []
    await w.run(200, 20)
    assert (await only(w)).state is InstanceState.GONE
    assert not await w.violations()


class Lagging(InFront):
    """Lists nothing until `from_at`, as its own lag allows."""

    def __init__(self, inner: Provider, clock: Clock, from_at: datetime) -> None:
        super().__init__(inner)
        self._clock, self._from_at = clock, from_at
        self.capabilities = replace(inner.capabilities, visibility_lag_s=120)

    async def list(self) -> Listing:
        found = await self.inner.list()
        return found if self._clock.now() >= self._from_at else replace(found, items=())


async def test_a_cloud_whose_listings_lag_loses_nothing_meanwhile(w: World) -> None:
    await w.approved(candidates=("vast",))
    until = w.clock.now() + timedelta(seconds=110)
    w.wrap("vast", lambda inner: cast("Provider", Lagging(inner, w.clock, until)))
    await w.settle()
    await w.run(100, 10)
    assert (await only(w)).state is InstanceState.LIVE
    await w.run(40, 10)
    row = await only(w)
    assert (row.state, row.absent_at) == (InstanceState.LIVE, [])
