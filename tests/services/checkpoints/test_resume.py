"""Interrupted work continues from the last verified checkpoint, inside its approval, and people read what is lost."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pytest
from sqlalchemy import select

from bot.api.views import session_out
from bot.rules.access.sight import Sight
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import stored_job
from bot.services.checkpoints.resume import MOST, last_verified_checkpoint, to_resume
from bot.services.nodes.startup import plans
from ledger.core.writes import amend
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, ResumePoint
from ledger.queries.jobs.resume_points import Unresumed
from ledger.queries.views import SessionView
from providers.gpus.constraint import GpuConstraint
from tests.services.checkpoints.test_verification import looks_at
from tests.support.stores import Shelf, served
from tests.support.world import World

#: A job saves this often, and is interrupted in between.
INTERVAL_S = 600
KINDS = ("notice", "none", "corrupt")
SIZE = 1000


@dataclass
class Trained:
    """A job that saves checkpoints below its own place."""

    w: World
    shelf: Shelf
    place: str
    request_id: str
    step: int = 0
    seen: set[str] = field(default_factory=set)

    def save(self, size: int = SIZE) -> str:
        """Save the next step, or as much of it as arrives, and return where it lies."""
        self.step += 100
        path = f"run/{self.place}/step-{self.step}/model.pt"
        self.shelf.put(path, size, self.w.clock.now())
        return f"s3://bucket/run/{self.place}/step-{self.step}"

    async def view(self) -> SessionView:
        found = (await self.w.view(self.request_id)).session
        assert found is not None
        return await self.w.session(found.id)

    async def lose(self) -> None:
        """Its cloud takes the machine."""
        row = (await self.view()).instance
        assert row is not None
        assert row.ref is not None
        self.w.clouds["vast"].disturb(row.ref, "vanish")

    async def points(self) -> list[ResumePoint]:
        async with self.w.ctx.db.read() as tx:
            mine = ResumePoint.session_id == (await self.view()).session.id
            return list(await tx.scalars(select(ResumePoint).where(mine).order_by(ResumePoint.found_at)))


async def trained(w: World, shelf: Shelf, place: str = "a") -> Trained:
    """A spot machine on which a job runs."""
    request_id = await w.running(
        candidates=("vast",),
        spot=SpotPolicy.YES,
        checkpoint=f"s3://bucket/run/{place}",
        hours=Decimal(8),
        run="python train.py",
    )
    return Trained(w, shelf, place, request_id)


async def variables(w: World, row: Instance | None) -> dict[str, str] | None:
    """What the agent of a machine reads; None while it is to ask again."""
    assert row is not None
    async with w.ctx.db.read() as tx:
        plan = (await plans(tx, [row.id])).get(row.id)
    return None if plan is None else {k: v for k, v in plan["environment"].items() if k.startswith("RESUME")}


def ready_for_losses(w: World) -> None:
    w.tune(price_tolerance=Decimal(9), replacements=3)


async def test_a_replacement_goes_on_from_the_last_good_checkpoint_and_its_owner_reads_what_is_lost(w: World) -> None:
    ready_for_losses(w)
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        job = await trained(w, shelf)
        assert await variables(w, (await job.view()).instance) == {}
        good = job.save()
        await w.run(420, 60)
        job.save(size=10)  # Its upload was cut off.
        await job.lose()
        await w.run(240, 20)
        view = await job.view()
        assert view.session.state is SessionState.RUNNING
        (point,) = await job.points()
        assert (point.path, point.step, point.size_bytes) == (good, 100, SIZE)
        assert 420 <= point.lost_s <= 500
        assert point.lost_usd > 0
        assert await variables(w, view.instance) == {"RESUME_FROM": good, "RESUME_STEP": "100"}
        texts = [str((one.body or {}).get("text")) for one in (await w.books()).notifications]
        assert point.said in texts
        assert "from its checkpoint of step 100, saved at" in point.said
        assert "minutes of work (about $" in point.said
        assert "run/a/step-200 has 10 bytes of about 1,000" in point.said
        (event,) = [one for one in (await w.books()).events if one.kind == "checkpoint.resumed"]
        assert event.reason == point.said


async def test_without_a_checkpoint_the_work_begins_anew(w: World) -> None:
    ready_for_losses(w)
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        job = await trained(w, shelf)
        await w.run(300, 60)
        await job.lose()
        await w.run(240, 20)
        (point,) = await job.points()
        assert (point.path, point.step, point.saved_at) == ("", None, None)
        assert point.said.startswith("There is no checkpoint yet, so session ")
        view = await job.view()
        assert view.resumed == point.said
        assert session_out(w.ctx, view, w.clock.now(), Sight.OWN).resumed == point.said
        assert await variables(w, (await job.view()).instance) == {}


async def test_a_replacement_of_a_machine_that_never_ran_does_not_wait_for_ever(bare: World) -> None:
    w = bare
    ready_for_losses(w)
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        job = await trained(w, shelf)
        place, first = job.save(), (await job.view()).instance
        shelf.down = True
        await job.lose()
        await w.run(240, 20)
        assert first is not None
        async with w.ctx.db.write() as tx:
            await amend(tx, Instance, first.id, live_at=None)
        shelf.down = False
        await w.run(60, 20)
        (point,) = await job.points()
        assert point.path == place
        assert await variables(w, (await job.view()).instance) == {"RESUME_FROM": place, "RESUME_STEP": "100"}


async def test_a_store_that_does_not_answer_is_asked_again_and_the_agent_waits(w: World) -> None:
    ready_for_losses(w)
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        job = await trained(w, shelf)
        good = job.save()
        shelf.down = True
        await job.lose()
        await w.run(240, 20)
        view = await job.view()
        assert (await job.points(), await variables(w, view.instance)) == ([], None)
        shelf.down = False
        await w.run(30, 30)
        assert await variables(w, view.instance) == {"RESUME_FROM": good, "RESUME_STEP": "100"}


async def test_a_store_that_never_answers_does_not_keep_a_paid_machine_waiting(w: World) -> None:
    ready_for_losses(w)
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        job = await trained(w, shelf)
        job.save()
        shelf.down = True
        await job.lose()
        await w.run(1300, 100)
        (point,) = await job.points()
        assert "Its checkpoints can't be read" in point.said
        assert await variables(w, (await job.view()).instance) == {}


async def test_a_place_that_the_policy_does_not_list_is_not_read(bare: World) -> None:
    w, shelf = bare, Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        w.tune(checkpoint_places=())
        found = await last_verified_checkpoint(w.ctx, "s3://bucket/run", w.clock.now())
        assert (found.verified, found.why) == (None, "The policy doesn't list the place of its checkpoints")
        assert shelf.asked == []
        found = await last_verified_checkpoint(w.ctx, "/workspace/out", w.clock.now())
        assert found.why == "GPU Shopper can't read its checkpoints"


@dataclass
class Losses:
    """Interruptions of many sessions, three at a time, and what followed."""

    w: World
    shelf: Shelf
    chance: random.Random
    resumed: Counter[str] = field(default_factory=Counter)

    async def batch(self, number: int) -> None:
        """Three jobs, each interrupted as long as its approval has another offer."""
        jobs = [await trained(self.w, self.shelf, f"{number}-{place}") for place in range(len(KINDS))]
        for turn in range(3):
            await self.interrupt(jobs, turn)
        for job in jobs:
            await self.w.end(job.request_id)
        await self.w.run(200, 40)

    async def interrupt(self, jobs: list[Trained], turn: int) -> None:
        """Interrupt each job that runs, in another way, and see where it continues."""
        running = [one for one in jobs if (await one.view()).session.state is SessionState.RUNNING]
        goods = [one.save() for one in running]
        kinds = [KINDS[(place + turn) % len(KINDS)] for place in range(len(running))]
        await self.w.run(self.chance.randrange(60, INTERVAL_S - 60), 120)
        before = [await one.view() for one in running]
        for place, (job, kind) in enumerate(zip(running, kinds, strict=True)):
            if kind == "notice":
                goods[place] = job.save()
            elif kind == "corrupt":
                job.save(size=self.chance.choice((0, 1, SIZE // 2)))
            await job.lose()
        await self.w.run(300, 20)
        for job, kind, good, was in zip(running, kinds, goods, before, strict=True):
            await self.check(job, kind, good, was)

    async def check(self, job: Trained, kind: str, good: str, was: SessionView) -> None:
        """It runs on another machine, from the last good checkpoint, inside what was approved."""
        view = await job.view()
        if view.session.state is not SessionState.RUNNING or view.instance is None or was.instance is None:
            assert not view.session.replacements_left or view.session.state is SessionState.QUEUED
            return  # No other offer that was shown is within the approved amount, so approvers are asked again.
        assert view.instance.id != was.instance.id
        assert view.instance.state is InstanceState.LIVE
        point = (await job.points())[-1]
        assert (point.instance_id, point.lost_instance_id) == (view.instance.id, was.instance.id)
        assert point.path == good
        assert point.lost_s <= INTERVAL_S
        assert await variables(self.w, view.instance) == {"RESUME_FROM": good, "RESUME_STEP": good.rpartition("-")[2]}
        assert view.session.deadline is not None
        assert was.session.deadline is not None
        assert view.session.deadline <= was.session.deadline
        assert view.accrued_usd <= view.cap_usd <= was.cap_usd
        self.resumed[kind] += 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_hundred_interruptions_resume_from_the_last_good_checkpoint(w: World) -> None:
    ready_for_losses(w)
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        losses, number = Losses(w, shelf, random.Random(19)), 0
        while losses.resumed.total() < 100:
            await losses.batch(number)
            number += 1
            assert number < 60, losses.resumed
        assert losses.resumed.total() >= 100
        assert all(losses.resumed[kind] >= 20 for kind in KINDS), losses.resumed


def test_jobs_without_checkpoints_take_no_places_of_others() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2))
    plain, saves = stored_job(job), stored_job(replace(job, checkpoint="s3://runs/a"))
    waiting = [Unresumed(Instance(id=f"ins_{n:03}"), plain) for n in range(MOST + 1)]
    waiting += [Unresumed(Instance(id=f"ins_{n:03}"), saves) for n in range(MOST + 1, 2 * MOST + 4)]
    # The oldest are looked at first.
    assert [one.instance.id for one in to_resume(waiting)] == [f"ins_{MOST + 1 + n:03}" for n in range(MOST)]
