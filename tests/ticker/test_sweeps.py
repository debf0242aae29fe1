"""The table of jobs, over a real ledger and the sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.services.runtime.clock_guard import GuardedClock
from bot.ticker.schedule import ScheduledJob
from bot.ticker.sweeps import CloudWatch, jobs
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState
from tests.support.clock import SteppedClock
from tests.support.world import World, world


@pytest.fixture
async def w(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service on SQLite; what the services do is tested elsewhere on both databases."""
    async with world(sqlite_db, clock) as built:
        yield built


def table(w: World) -> dict[str, ScheduledJob]:
    return {job.name: job for job in jobs(w.ctx, w.board, None)}


@pytest.mark.slow
async def test_the_jobs_alone_carry_a_request_to_a_running_instance(w: World) -> None:
    found = table(w)

    async def all_of_them() -> None:
        for job in found.values():
            await job.run()

    request_id = str((await w.ask()).data["request_id"])
    await all_of_them()
    await w.decide(request_id)
    for _ in range(60):
        await all_of_them()
        w.clock.advance(5)
    instance = (await w.view(request_id)).instances[0]
    assert instance.state is InstanceState.LIVE
    assert instance.reachable_at is not None
    assert "session.ready" in w.board.kinds()


async def test_every_cloud_has_a_watch_and_names_are_unique(w: World) -> None:
    found = jobs(w.ctx, w.board, None)
    assert len({job.name for job in found}) == len(found)
    assert {f"reconcile-{cloud}" for cloud in w.ctx.providers} <= {job.name for job in found}
    assert all(job.every_s > 0 for job in found)


async def test_without_a_door_nothing_is_delivered_or_recovered(w: World) -> None:
    async def recover() -> int:
        return 0

    assert not {"outbox", "inbox"} & {job.name for job in jobs(w.ctx, None, None)}
    assert {"outbox", "inbox"} <= {job.name for job in jobs(w.ctx, w.board, recover)}


def listings(w: World, cloud: str) -> int:
    return sum(call.cloud == cloud for call in w.engine.calls)


async def test_a_quiet_cloud_is_looked_at_at_the_sweeps_pace(w: World) -> None:
    watch = CloudWatch(w.ctx, "runpod")
    assert await watch.look() == 1
    first = listings(w, "runpod")
    w.clock.advance(w.ctx.timing.sweep_s - 1)
    assert await watch.look() == 0
    assert listings(w, "runpod") == first
    w.clock.advance(1)
    assert await watch.look() == 1


async def test_a_hint_shortens_the_pause_to_the_pace_of_a_boot_and_no_further(w: World) -> None:
    watch = CloudWatch(w.ctx, "runpod")
    watch.hurry()
    await watch.look()
    watch.hurry()
    assert await watch.look() == 0
    w.clock.advance(w.ctx.timing.boot_poll_s)
    assert await watch.look() == 1


async def test_a_cloud_is_looked_at_again_when_its_answer_corrects_a_clock_a_year_ahead(w: World) -> None:
    w.machine.off = timedelta(days=365)
    w.ctx = replace(w.ctx, clock=GuardedClock(w.machine))
    watch = CloudWatch(w.ctx, "runpod")
    assert await watch.look() == 1
    clock = w.ctx.clock
    assert isinstance(clock, GuardedClock)
    clock.note_date("runpod", w.clock.now(), 0.1)
    assert clock.now() == w.clock.now()
    w.clock.advance(w.ctx.timing.sweep_s)
    assert await watch.look() == 1


@pytest.mark.slow
async def test_a_cloud_that_does_not_answer_is_asked_again_soon(w: World) -> None:
    w.arm("list_503", "runpod", None)
    watch = CloudWatch(w.ctx, "runpod")
    assert await watch.look_now() == 1
    w.clock.advance(w.ctx.timing.boot_poll_s)
    assert await watch.look() == 1
