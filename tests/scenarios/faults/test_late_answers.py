"""What a cloud answers counts by the state of its row, and not by the claim that the call was made under."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.policy.timing import Timing
from bot.services.instances import launch, reconcile, termination, unknown_outcome
from bot.services.runtime.context import Hints
from ledger.kernel.grant import Grant
from ledger.kernel.states import InstanceState, RequestState
from ledger.models import Instance
from providers.contract import InstanceSpec, NotSeen, ObservedInstance, Offer, Provider
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import Gate, Hiding, InFront, alive, gated
from tests.support.world import World


class Waiting(InFront):
    """Holds one kind of answer back until `go` is set."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.there, self.go = asyncio.Event(), asyncio.Event()

    async def _hold(self) -> None:
        self.there.set()
        await self.go.wait()


class LateCreate(Waiting):
    """A cloud whose reply to a create comes late."""

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        made = await self.inner.create(spec, grant)
        await self._hold()
        return made


class LateEnd(Waiting):
    """A cloud whose reply to a termination comes late."""

    async def terminate(self, ref: str) -> bool:
        was_there = await self.inner.terminate(ref)
        await self._hold()
        return was_there


class LateSearch(Waiting):
    """A cloud whose answer to a search for a label comes late."""

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        found = await self.inner.find(name_suffix)
        await self._hold()
        return found


class LateSale(Waiting):
    """A cloud that says late that an offer is sold."""

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        await self._hold()
        return None


class StandsStill(asyncio.Event):
    """A process that stands still where it says that something became due, once."""

    def __init__(self, clock: SteppedClock, seconds: float) -> None:
        super().__init__()
        self._clock, self._seconds = clock, seconds

    def set(self) -> None:
        self._clock.advance(self._seconds)
        self._seconds = 0
        super().set()


@asynccontextmanager
async def replica(w: World) -> AsyncIterator[World]:
    other = w.replica()
    try:
        yield other
    finally:
        await other.ctx.db.close()


def with_(kind: type[InFront]) -> Callable[[Provider], Provider]:
    return lambda inner: cast("Provider", kind(inner))


async def states(w: World, request_id: str) -> list[InstanceState]:
    return [row.state for row in (await w.view(request_id)).instances]


async def only(w: World) -> Instance:
    (row,) = (await w.books()).instances
    return row


@pytest.mark.both_databases
async def test_a_no_that_comes_after_the_create_was_taken_for_lost_leads_to_the_next_offer(w: World) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.approved(candidates=("vast",))
    async with replica(w) as other:
        w.wrap("vast", gated)
        gate = cast("Gate", w.ctx.providers["vast"])
        sending = asyncio.create_task(launch.send_due(w.ctx))
        await gate.entered.wait()
        await other.run(160, 40)
        assert await states(w, request_id) == [InstanceState.UNKNOWN]
        w.arm("create_stale_offer", "vast")
        gate.go.set()
        await sending
        assert (await states(w, request_id))[0] is InstanceState.REJECTED
        await other.run(60, 20)
    view = await w.view(request_id)
    assert [row.state for row in view.instances] == [InstanceState.REJECTED, InstanceState.LIVE]
    assert len({row.grant_id for row in view.instances}) == 1
    assert (view.instances[0].outcome_code, view.request.state) == ("no_capacity", RequestState.APPROVED)
    assert w.alive() == [view.instances[1].name]
    w.wrap("vast", alive)


@pytest.mark.both_databases
async def test_a_no_that_comes_after_the_give_up_changes_nothing(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    async with replica(w) as other:
        w.wrap("vast", gated)
        gate = cast("Gate", w.ctx.providers["vast"])
        sending = asyncio.create_task(launch.send_due(w.ctx))
        await gate.entered.wait()
        await other.run(500, 100)
        w.arm("create_stale_offer", "vast")
        gate.go.set()
        await sending
    view = await w.view(request_id)
    assert [row.state for row in view.instances] == [InstanceState.TOMBSTONE]
    assert view.request.state is RequestState.PENDING
    w.wrap("vast", alive)


@pytest.mark.both_databases
async def test_what_a_paused_process_knew_before_the_send_does_not_refuse_what_another_one_sent(w: World) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.approved(candidates=("vast",))
    async with replica(w) as other:
        w.wrap("vast", with_(LateSale))
        late = cast("LateSale", w.ctx.providers["vast"])
        pricing = asyncio.create_task(launch.send_due(w.ctx))
        await late.there.wait()
        w.clock.advance(timedelta(seconds=300))
        other.wrap("vast", gated)
        gate = cast("Gate", other.ctx.providers["vast"])
        sending = asyncio.create_task(launch.send_due(other.ctx))
        await gate.entered.wait()
        late.go.set()
        await pricing
        assert await states(w, request_id) == [InstanceState.SENDING]
        gate.go.set()
        await sending
    assert await states(w, request_id) == [InstanceState.LIVE]
    assert len(w.engine.creates) == len(w.alive()) == 1
    w.wrap("vast", alive)


@asynccontextmanager
async def late_create(w: World, cloud: str) -> AsyncIterator[None]:
    """A create has reached its cloud, and its reply comes at the end of the block."""
    w.wrap(cloud, with_(LateCreate))
    late = cast("LateCreate", w.ctx.providers[cloud])
    sending = asyncio.create_task(launch.send_due(w.ctx))
    await late.there.wait()
    yield
    late.go.set()
    await sending
    w.wrap(cloud, alive)


@pytest.mark.parametrize("cloud", ["tensordock", "vast"])
async def test_a_create_has_the_time_that_its_cloud_takes(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    async with replica(w) as other, late_create(w, cloud):
        other.wrap(cloud, with_(Hiding))  # A listing that shows the instance would do for the reply to its create.
        w.clock.advance(w.ctx.providers[cloud].capabilities.create_timeout_s + launch.SEND_WITHIN_S)
        await other.tick()
        assert await states(w, request_id) == [InstanceState.SENDING]
    assert await states(w, request_id) == [InstanceState.LIVE]
    assert len(w.engine.creates) == 1


@pytest.mark.both_databases
async def test_a_reply_that_comes_after_the_listing_changes_nothing(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    async with replica(w) as other, late_create(w, "vast"):
        w.clock.advance(20)
        await reconcile.observe(other.ctx, "vast")
        (listed,) = (await w.view(request_id)).instances
    (row,) = (await w.view(request_id)).instances
    assert (listed.state, row.state, row.version) == (InstanceState.LIVE, InstanceState.LIVE, listed.version)
    assert len(w.engine.creates) == len(w.alive()) == 1


async def test_the_shortest_lease_that_is_allowed_covers_the_wait_for_every_clouds_answer(w: World) -> None:
    (patience,) = (item.metadata["floor"] for item in fields(Timing) if item.name == "create_patience")
    w.tune(create_patience=patience)
    for provider in w.ctx.providers.values():
        longest_s = provider.capabilities.create_timeout_s + launch.SEND_WITHIN_S
        assert launch.create_lease(w.ctx, provider.capabilities) >= timedelta(seconds=longest_s)


async def test_a_process_that_stood_still_after_its_commit_sends_nothing(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    running = w.ctx
    w.ctx = replace(w.ctx, hints=Hints(outbox=StandsStill(w.clock, launch.SEND_WITHIN_S)))
    await launch.send_due(w.ctx)
    w.ctx = running
    (row,) = (await w.view(request_id)).instances
    assert (row.state, row.outcome, w.engine.creates) == (InstanceState.UNKNOWN, launch.PAUSED, [])
    await w.run(360, 60)
    assert (await states(w, request_id), w.engine.creates) == ([InstanceState.TOMBSTONE], [])


async def test_a_process_that_was_quick_enough_sends(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    running = w.ctx
    w.ctx = replace(w.ctx, hints=Hints(outbox=StandsStill(w.clock, launch.SEND_WITHIN_S - 1)))
    await launch.send_due(w.ctx)
    w.ctx = running
    assert (await states(w, request_id), len(w.engine.creates)) == ([InstanceState.LIVE], 1)


async def test_a_create_is_not_given_up_by_a_search_of_long_ago(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_lands_late", "vast", after_s=60)
    await launch.send_due(w.ctx)
    w.wrap("vast", with_(LateSearch))
    late = cast("LateSearch", w.ctx.providers["vast"])
    searching = asyncio.create_task(unknown_outcome.resolve_due(w.ctx))
    await late.there.wait()
    w.clock.advance(600)
    late.go.set()
    await searching
    assert await states(w, request_id) == [InstanceState.UNKNOWN]
    w.wrap("vast", alive)
    await w.run(30, 15)
    assert await states(w, request_id) == [InstanceState.LIVE]


@asynccontextmanager
async def ending_late(w: World, ran_s: float) -> AsyncIterator[tuple[World, LateEnd, asyncio.Task[int]]]:
    """A termination whose reply is held back: another replica, the cloud in front of it, and the step that waits."""
    request_id = await w.running(candidates=("vast",), hours=Decimal(6))
    await w.run(ran_s, 600)
    await w.end(request_id)
    async with replica(w) as other:
        w.wrap("vast", with_(LateEnd))
        late = cast("LateEnd", w.ctx.providers["vast"])
        ending = asyncio.create_task(termination.terminate_due(w.ctx))
        await late.there.wait()
        yield other, late, ending


@pytest.mark.both_databases
async def test_a_reply_to_a_termination_counts_although_its_claim_is_lost(w: World) -> None:
    async with ending_late(w, 1800) as (other, late, ending):
        w.clock.advance(w.ctx.timing.claim_ttl_s + 1)
        w.arm("destroy_503", "vast", times=None)
        w.arm("list_503", "vast", times=None)
        assert await termination.terminate_due(other.ctx) == 1
        assert (await only(w)).terminate_acked_at is None
        late.go.set()
        await ending
        acked_at = (await only(w)).terminate_acked_at
        assert acked_at == w.clock.now()
        w.wrap("vast", alive)
        w.clock.advance(3600)
        w.engine.faults.disarm()
        await w.run(180, 30)
    row = await only(w)
    # The bill stopped with the reply; without it another hour would be booked.
    assert (row.state, row.ended_at) == (InstanceState.GONE, acked_at)


@pytest.mark.both_databases
async def test_a_reply_that_came_late_takes_no_absence_back_that_was_seen_since_the_call(w: World) -> None:
    async with ending_late(w, 600) as (other, late, ending):
        w.arm("destroy_503", "vast", times=None)
        for _ in range(2):
            w.clock.advance(25)
            await reconcile.observe(other.ctx, "vast")
        absences = (await only(w)).absent_at
        assert len(absences) == 2
        late.go.set()
        await ending
        row = await only(w)
        assert (row.absent_at, row.terminate_acked_at) == (absences, w.clock.now())
        w.wrap("vast", alive)
        w.engine.faults.disarm()
        await w.run(60, 30)
    row = await only(w)
    assert (row.state, row.ended_at and row.ended_at.isoformat()) == (InstanceState.GONE, absences[0])
