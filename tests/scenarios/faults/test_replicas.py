"""Several replicas on one ledger do everything at once, and everything happens once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from bot.rules.values.reply_code import ReplyCode
from bot.services.instances import launch, reconcile
from ledger.kernel.states import InstanceState, SessionState
from providers.contract import Listing, NotSeen, Provider
from tests.support.matrix import on_clouds
from tests.support.proxy_provider import Gate, InFront, alive, gated
from tests.support.world import ALICE, BOB, CAROL, World

pytestmark = pytest.mark.both_databases


@asynccontextmanager
async def replicas(w: World, count: int) -> AsyncIterator[list[World]]:
    """`w` and further replicas of it."""
    others = [w.replica() for _ in range(count - 1)]
    try:
        yield [w, *others]
    finally:
        for one in others:
            await one.ctx.db.close()


async def together(all_of_them: list[World], seconds: float, step_s: float) -> None:
    """Let time pass with every replica ticking at once."""
    end = all_of_them[0].clock.now() + timedelta(seconds=seconds)
    while True:
        for _ in range(3):
            await asyncio.gather(*(one.tick() for one in all_of_them))
        if all_of_them[0].clock.now() >= end:
            return
        all_of_them[0].clock.advance(step_s)


async def test_the_whole_walk_with_three_replicas_has_one_of_everything(w: World) -> None:
    async with replicas(w, 3) as three:
        ids = [str((await one.ask(key=f"walk-{n}")).data["request_id"]) for n, one in enumerate(three)]
        await together(three, 0, 1)
        for request_id in ids:
            clicks = [one.decide(request_id, who) for one, who in zip(three, (BOB, CAROL, BOB), strict=True)]
            assert sorted(reply.code for reply in await asyncio.gather(*clicks)).count(ReplyCode.APPROVED) == 1
        w.arm("create_lost_reply", times=1)
        await together(three, 120, 30)
        for request_id in ids:
            view = await w.view(request_id)
            assert view.session is not None
            assert view.session.state is SessionState.RUNNING
        assert len(w.alive()) == 3
        assert len({call.name for call in w.engine.creates}) == len(w.engine.creates)
        await together(three, 3600, 1800)
        await asyncio.gather(*(one.end(request_id) for one in three for request_id in ids))
        await together(three, 120, 30)
    assert {row.state for row in (await w.books()).sessions} == {SessionState.TERMINATED}
    posted = [one[:2] for each in three for one in each.board.shown if (one[0], one[3]) == ("session.ready", 1)]
    assert len(posted) == len(set(posted)) == 3


@on_clouds(terminate=True)
async def test_a_sender_that_pauses_until_it_was_taken_for_dead_does_not_send_twice(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.wrap(cloud, gated)
    gate = w.ctx.providers[cloud]
    assert isinstance(gate, Gate)
    sending = asyncio.create_task(launch.send_due(w.ctx))
    await gate.entered.wait()
    async with replicas(w, 2) as (_, other):
        other.wrap(cloud, alive)
        await other.run(500, 100)  # The other replica takes over, searches, and gives up.
        view = await w.view(request_id)
        assert [row.state for row in view.instances] == [InstanceState.TOMBSTONE]
        assert (await other.decide(request_id, CAROL)).code == "approved"
        await other.run(40, 20)
        gate.go.set()  # Now the first one wakes up and its create goes out after all.
        await sending
        assert len(w.alive()) == 2
        await other.run(150, 30)
    view = await w.view(request_id)
    assert [row.state for row in view.instances] == [InstanceState.TOMBSTONE, InstanceState.LIVE]
    assert w.alive() == [view.instances[1].name]
    w.wrap(cloud, alive)


async def test_ends_and_sweeps_at_once_do_not_get_in_each_others_way(w: World) -> None:
    async with replicas(w, 3) as three:
        for _ in range(4):
            request_id = await w.running()
            (instance,) = (await w.view(request_id)).instances[-1:]
            assert instance.ref is not None
            w.clouds[instance.cloud].disturb(instance.ref, "vanish")
            for _ in range(3):
                w.clock.advance(30)
                await w.tick()
            # The last listing proves that it is gone while people order its end.
            outcomes = await asyncio.gather(
                *(one.tick() for one in three), *(one.end(request_id, ALICE) for one in three), return_exceptions=True
            )
            assert not [error for error in outcomes if isinstance(error, BaseException)], outcomes
    assert {row.state for row in (await w.books()).sessions} == {SessionState.TERMINATED}


async def test_a_move_that_lost_its_race_is_never_an_error_for_people(w: World) -> None:
    request_id = await w.approved()
    async with replicas(w, 3) as three:
        replies = await asyncio.gather(
            *(one.end(request_id) for one in three),
            *(one.cancel(request_id) for one in three),
            *(launch.send_due(one.ctx) for one in three),
            return_exceptions=True,
        )
    assert not [error for error in replies if isinstance(error, BaseException)], replies
    assert len(w.engine.creates) <= 1


class LateDenial(InFront):
    """A cloud that denies an instance when it is read by its id, and whose denial arrives when `go` is set."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def list(self) -> Listing:
        return replace(await self.inner.list(), items=())

    async def get(self, ref: str) -> NotSeen:
        listing = await self.inner.list()
        self.asked.set()
        await self.go.wait()
        return NotSeen(listing.cloud, listing.at)


async def test_what_another_replica_sees_meanwhile_is_not_closed_as_lost(w: World) -> None:
    """The first replica's absences prove an end, while the second one sees the instance and clears them."""
    await w.running(candidates=("vast",))
    await w.engine.ssh_ports.close_all()
    async with replicas(w, 2) as (first, second):
        before = w.ctx.providers["vast"]
        first.wrap("vast", lambda inner: cast("Provider", LateDenial(inner)))
        denial = cast("LateDenial", first.ctx.providers["vast"])
        for _ in range(2):
            w.clock.advance(60)
            await reconcile.observe(first.ctx, "vast")
        w.clock.advance(60)
        closing = asyncio.create_task(reconcile.observe(first.ctx, "vast"))
        await denial.asked.wait()
        assert len((await w.books()).instances[0].absent_at) == 2
        await reconcile.observe(second.ctx, "vast")
        denial.go.set()
        await closing
        (row,) = (await w.books()).instances
        assert (row.state, row.absent_at, w.alive()) == (InstanceState.LIVE, [], [row.name])
        first.use({**first.ctx.providers, "vast": before})
