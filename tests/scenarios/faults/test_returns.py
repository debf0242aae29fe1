"""What was closed and is listed again is ended, however often it returns; what nobody ordered to end is asked about."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.services.audit.invariants.money import SPENT
from bot.services.instances import reconcile
from bot.services.runtime import recovery_mode
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState, OrphanState
from ledger.models import Orphan
from providers.contract import Listing, Provider
from providers.sandbox.vast.account import Contract
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.proxy_provider import InFront, alive
from tests.support.world import BOB, World


class Short(InFront):
    """A cloud whose listings and reads lack some instances."""

    def __init__(self, inner: Provider, lacks: set[str], *, reads: bool) -> None:
        super().__init__(inner)
        self.lacks, self.reads = lacks, reads

    async def list(self) -> Listing:
        found = await self.inner.list()
        return replace(found, items=tuple(item for item in found.items if item.ref not in self.lacks))

    async def get(self, ref: str) -> object:
        return await self.inner.get("1" if self.reads and ref in self.lacks else ref)


class Paused(InFront):
    """Gives back one listing late, as to a process that stood still while it came."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.there, self.go = asyncio.Event(), asyncio.Event()

    async def list(self) -> Listing:
        found = await self.inner.list()
        self.there.set()
        await self.go.wait()
        return found


def rent(w: World, name: str) -> Contract:
    """Somebody makes an instance at Vast.ai behind our back."""
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    return vast.account.rent(next(vast.account.market.slices()), {"label": name, "image": "x", "disk": 50})


async def hidden(w: World, seconds: float, *refs: str, reads: bool = True) -> None:
    """Let time pass in which listings, and reads by id where `reads` says so, lack these instances."""
    w.wrap("vast", lambda inner: cast("Provider", Short(inner, set(refs), reads=reads)))
    await w.run(seconds, 30)
    w.wrap("vast", alive)


async def orphans(w: World) -> list[Orphan]:
    return sorted((await w.books()).orphans, key=lambda orphan: orphan.id)


async def states(w: World) -> list[OrphanState]:
    return [orphan.state for orphan in await orphans(w)]


async def off(w: World, ref: str) -> Decimal:
    """Dollars that are booked for an orphan above its bill."""
    losses = {f"loss:{orphan.id}" for orphan in await orphans(w) if orphan.ref == ref}
    booked = sum((one.amount_usd for one in (await w.books()).entries if one.debit in losses and one.kind in SPENT), 0)
    return Decimal(booked) - next(item.total_usd for item in w.instances() if item.ref == ref)


async def test_an_orphan_that_counted_as_gone_is_ended_however_often_it_returns(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(6))
    (row,) = (await w.books()).instances
    twin = str(rent(w, row.name).ref)
    w.arm("destroy_not_done", "vast", times=None)
    await w.run(90, 30)
    for times in (1, 2):
        assert await states(w) == [OrphanState.GONE] * (times - 1) + [OrphanState.CONDEMNED]
        await hidden(w, 120, twin)
        assert await states(w) == [OrphanState.GONE] * times
        await w.run(90, 30)
    w.engine.faults.disarm()
    await w.run(180, 30)
    assert await states(w) == [OrphanState.GONE] * 3
    assert w.alive() == [row.name]
    assert (await w.books()).instances[0].ref == next(item.ref for item in w.instances() if item.alive)
    # No second of it is booked twice, and none of its returns is free.
    assert abs(await off(w, twin)) <= Decimal("0.01")
    assert w.board.kinds().count("orphan.found") == 3


async def test_an_instance_that_was_ended_and_returns_twice_is_ended_twice(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    (row,) = (await w.books()).instances
    w.arm("destroy_not_done", "vast", times=None)
    await w.end(request_id)
    await hidden(w, 120, str(row.ref))
    assert (await w.books()).instances[0].state is InstanceState.GONE
    await w.run(90, 30)
    assert await states(w) == [OrphanState.CONDEMNED]
    await hidden(w, 120, str(row.ref))
    assert await states(w) == [OrphanState.GONE]
    w.engine.faults.disarm()
    await w.run(240, 30)
    assert await states(w) == [OrphanState.GONE, OrphanState.GONE]
    assert w.alive() == []


async def test_one_without_a_row_is_asked_about_each_time_until_an_operator_condemns_it(w: World) -> None:
    made = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}")
    made.offline = True
    await w.run(60, 30)
    await hidden(w, 120, str(made.ref))
    await w.run(3600, 600)
    assert await states(w) == [OrphanState.GONE, OrphanState.QUARANTINED]
    assert len(w.alive()) == 1
    (_, waiting) = await orphans(w)
    w.arm("destroy_not_done", "vast", times=None)
    assert (await recovery_mode.condemn(w.ctx.db, waiting.id, BOB, "nobody's", w.clock.now())).ok
    await hidden(w, 120, str(made.ref))
    assert await states(w) == [OrphanState.GONE, OrphanState.GONE]
    w.engine.faults.disarm()
    await w.run(240, 30)
    assert await states(w) == [OrphanState.GONE] * 3
    assert w.alive() == []


async def test_a_condemned_orphan_that_its_cloud_shows_by_id_is_ended_although_no_listing_has_it(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(6))
    (row,) = (await w.books()).instances
    twin = rent(w, row.name)
    w.arm("destroy_not_done", "vast", times=None)
    await w.run(90, 30)
    await hidden(w, 300, str(twin.ref), reads=False)
    assert await states(w) == [OrphanState.CONDEMNED]
    assert "operator.page" in w.board.kinds((await orphans(w))[0].id)
    w.engine.faults.disarm()
    await hidden(w, 300, str(twin.ref), reads=False)
    assert await states(w) == [OrphanState.GONE]
    assert w.alive() == [row.name]
    assert abs(await off(w, str(twin.ref))) <= Decimal("0.01")


async def test_a_quarantined_orphan_whose_ssh_port_answers_does_not_count_as_gone(w: World) -> None:
    made = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}")
    await w.run(60, 30)
    await hidden(w, 300, str(made.ref))
    assert await states(w) == [OrphanState.QUARANTINED]
    await w.run(60, 30)
    assert [orphan.absent_at for orphan in await orphans(w)] == [[]]
    w.clouds["vast"].disturb(str(made.ref), "vanish")
    await w.run(120, 30)
    assert await states(w) == [OrphanState.GONE]


@pytest.mark.both_databases
async def test_replicas_that_sight_a_return_together_record_it_once(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(6))
    (row,) = (await w.books()).instances
    twin = str(rent(w, row.name).ref)
    w.arm("destroy_not_done", "vast", times=None)
    await w.run(60, 30)
    await hidden(w, 120, twin)
    replicas = [w, w.replica(), w.replica()]
    for _ in range(3):
        await asyncio.gather(*(reconcile.observe(one.ctx, "vast") for one in replicas))
        w.clock.advance(20)
    assert await states(w) == [OrphanState.GONE, OrphanState.CONDEMNED]
    w.engine.faults.disarm()
    for _ in range(6):
        await asyncio.gather(*(reconcile.observe(one.ctx, "vast") for one in replicas))
        w.clock.advance(20)
    for one in replicas[1:]:
        await one.ctx.db.close()
    assert await states(w) == [OrphanState.GONE, OrphanState.GONE]
    assert w.alive() == [row.name]


@pytest.mark.both_databases
async def test_a_listing_of_before_the_end_shows_no_return(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    other = w.replica()
    other.wrap("vast", lambda inner: cast("Provider", Paused(inner)))
    paused = cast("Paused", other.ctx.providers["vast"])
    looking = asyncio.create_task(reconcile.observe(other.ctx, "vast"))
    await paused.there.wait()
    w.clock.advance(timedelta(seconds=1))
    await w.end(request_id)
    await w.run(150, 30)
    assert (await w.books()).instances[0].state is InstanceState.GONE
    paused.go.set()
    await looking
    await other.ctx.db.close()
    assert await orphans(w) == []
