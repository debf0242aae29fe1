"""A move never leaves fewer machines than it found, and never fewer good copies, whatever it fails at."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from bot.services.checkpoints.resume import last_verified_checkpoint
from bot.services.nodes.startup import plans
from ledger.core.relocation_steps import take_step
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.ids import short_id
from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import Migration
from providers.sandbox.agents import SandboxAgent
from providers.sandbox.vast.sandbox import VastSandbox
from tests.services.relocation.run import PLACE, SOURCE, TARGET, Run, running
from tests.support.world import World

_M = MigrationStep


async def silent_from(run: Run, at: MigrationStep) -> None:
    """The source's agent falls silent in this step, as on a machine whose network is gone."""
    await run.approved()
    await run.until(at)
    run.first.silent = True
    vast = run.w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    # Nor does its SSH server answer: otherwise its silence alone would end nothing.
    vast.account.instances[int((await run.row(SOURCE)).ref or 0)].reachable_s = 1e9


@pytest.mark.parametrize("at", [_M.READY, _M.VERIFIED])
@pytest.mark.slow
async def test_a_source_that_falls_silent_leaves_its_run_to_the_target(w: World, at: MigrationStep) -> None:
    async with running(w, hours=6) as run:
        if at is _M.VERIFIED:
            run.refuses.add("fetch")
        await silent_from(run, at)
        for _ in range(12):
            await run.tick()
        (text,) = await run.texts()
        assert "has not reported since" in text
        assert "is kept, and you pay for both" in text
        for _ in range(60):  # 30 minutes: the source is ended as unresponsive, and the step's longest time has passed.
            await run.tick()
        run.refuses.clear()
        row = await run.over()
        source, target = await run.sessions()
        assert target is not None
        assert (source.end_code, target.state) == (EndReason.NO_HEARTBEAT, SessionState.RUNNING), row.note
        assert len(w.alive()) == 1
        assert row.step is _M.DONE, row.note
        assert run.second.step > int(row.saved_step or 0) > 0


class Trainer:
    """A command on the target that ignores RESUME_FROM, and saves where CHECKPOINT says, or at a place of its own."""

    def __init__(self, run: Run, place: str | None) -> None:
        self.run, self.place, self.saved = run, place, [0]

    async def tick(self) -> None:
        """Train for a while, and save every few steps."""
        await self.run.tick()
        agent = next((one for one in self.run.agents if one is not self.run.first), None)
        if agent is not None and agent.job == "running" and any(agent.utilisation) and agent.step > self.saved[-1]:
            self.saved.append(int(agent.step))
            place = self.place or await self._checkpoint()
            folder = place.removeprefix("s3://bucket/")
            self.run.shelf.put(f"{folder}/step-{self.saved[-1]}/model.pt", 1_000, self.run.w.clock.now())

    async def _checkpoint(self) -> str:
        row = await self.run.row(TARGET)
        async with self.run.w.ctx.db.read() as tx:
            environment = (await plans(tx, [row.id]))[row.id]["environment"]
        return str(environment.get("CHECKPOINT", PLACE))

    async def over(self) -> Migration:
        """Train until the move is over, and for a while after it."""
        for _ in range(400):
            row = await self.run.migration()
            if row is not None and row.step in OVER:
                break
            await self.tick()
        for _ in range(6):
            await self.tick()
        row = await self.run.migration()
        assert row is not None
        return row


@pytest.mark.parametrize("place", [None, PLACE])
@pytest.mark.slow
async def test_a_target_that_begins_anew_is_paused_and_the_source_goes_on_from_its_save(
    w: World, place: str | None
) -> None:
    async with running(w, hours=6) as run:
        run.refuses.add("resume")
        await run.approved()
        before = dict(run.shelf.files)
        trainer = Trainer(run, place)
        row = await trainer.over()
        source, target = await run.sessions()
        assert source.state is SessionState.RUNNING, row.note
        assert row.step is _M.FAILED
        saved = int(row.saved_step or 0)
        assert f"and the save is of step {saved:,}. The run did not continue from its save" in row.note
        assert target is not None
        assert target.end_code == EndReason.MIGRATION_FAILED
        assert len(w.alive()) == 1
        for _ in range(3):
            await run.tick()
        assert run.first.job == "running"
        # What the target wrote lies beside the run's own copies, and none of those was replaced. It counts for nothing.
        own = f"run/moved-{short_id(run.target_id)}/"
        assert any(path.startswith(own) for path in run.shelf.files) is (place is None)
        assert {path for path, file in run.shelf.files.items() if before.get(path, file) != file} == set()
        found = await last_verified_checkpoint(w.ctx, PLACE, w.clock.now())
        assert found.verified is not None
        assert not found.verified.checkpoint.path.startswith(own)
        assert (found.verified.checkpoint.step or 0) >= saved
        texts = await run.texts()
        assert "did not continue from its save, so it was paused there" in texts[0]
        assert "continues now" in texts[-1]
        # A failed move does not block the next one, even before the run has saved again.
        run.refuses.clear()
        reply = await run.ask(key="move-2")
        assert reply.ok, reply
        await w.settle()
        assert (await w.decide(run.target_id)).code == "approved"
        assert (await run.over()).step is _M.DONE


@pytest.mark.slow
async def test_a_run_that_moved_saves_at_its_own_place_and_its_next_machine_finds_it(w: World) -> None:
    w.tune(replacements=1, price_tolerance=Decimal(9))
    async with running(w, hours=6) as run:
        await run.approved()
        trainer = Trainer(run, None)
        row = await trainer.over()
        assert row.step is _M.DONE, row.note
        found = await last_verified_checkpoint(w.ctx, PLACE, w.clock.now())
        own = f"s3://bucket/run/moved-{short_id(run.target_id)}"
        assert row.target_place == own
        assert found.address.startswith(f"{own}/step-"), found
        # The next move of the run continues from there, and gets a place of its own beside it.
        run.request_id, first = run.target_id, run.second
        first.saved_step, first.saved_at = trainer.saved[-1], w.clock.now()
        run.first = first
        await run.tick()
        reply = await run.ask(key="move-2")
        assert reply.ok, reply
        second = await run.migration()
        assert second is not None
        assert second.saved_from.startswith(f"{own}/step-")
        assert second.target_place == f"s3://bucket/run/moved-{short_id(run.target_id)}"


@pytest.mark.slow
async def test_a_target_that_begins_anew_after_the_source_was_lost_is_paused_and_kept(w: World) -> None:
    async with running(w, hours=6) as run:
        run.refuses.add("resume")
        await run.approved()
        await run.until(_M.READY)
        w.clouds["vast"].disturb(str((await run.row(SOURCE)).ref), "vanish")
        row = await run.over()
        _, target = await run.sessions()
        assert target is not None
        assert (row.step, target.state, len(w.alive())) == (_M.FAILED, SessionState.RUNNING, 1), row.note
        assert run.second.asks == ("pause",)
        assert "is left until its approved end" in (await run.texts())[-1]


@pytest.mark.slow
async def test_a_move_that_failed_before_the_source_was_lost_goes_on_there(w: World) -> None:
    """The decision to end the target is made again before it is carried out."""
    async with running(w, hours=6) as run:
        run.refuses.add("pause")
        await run.approved()
        await run.until(_M.READY)
        w.clouds["vast"].disturb(str((await run.row(SOURCE)).ref), "vanish")
        async with w.ctx.db.write() as tx:
            moved = await run.migration()
            assert moved is not None
            await take_step(tx, moved, _M.ENDING, w.clock.now(), SYSTEM, "It failed.")
        run.first.silent = True
        w.tune(end_when_unresponsive=False)
        w.clock.advance(300)
        row = await run.until(_M.DONE, _M.FAILED)
        _, target = await run.sessions()
        assert target is not None
        assert (row.step, target.state) == (_M.DONE, SessionState.RUNNING), row.note


@pytest.mark.slow
@pytest.mark.parametrize("step", [_M.READY, _M.VERIFIED])
async def test_no_step_that_nothing_names_pauses_the_last_machine(w: World, step: MigrationStep) -> None:
    """The files of its store have no step in their names, and its agent reports no step of a checkpoint."""
    async with running(w, hours=6) as run:
        run.shelf.files.clear()
        saved = int(run.first.step)
        run.shelf.put("run/latest/model.pt", 1_000, w.clock.now())
        run.first.saved_step = run.first.saved_at = None
        target = _UnnamedSteps(run, saved)
        await run.tick()
        run.refuses |= {"train"} | ({"fetch"} if step is _M.VERIFIED else set())
        await run.approved()
        if step is _M.READY:
            run.refuses |= {"save", "pause"}
        row = await run.until(step)
        if step is not _M.READY:
            assert (row.is_step_inferred, row.saved_step) == (True, int(run.first.step))
        await run.tick()
        w.clouds["vast"].disturb(str((await run.row(SOURCE)).ref), "vanish")
        for _ in range(20):
            await run.tick()
        run.refuses.clear()
        row = await run.over()
        _, session = await run.sessions()
        assert session is not None
        assert (row.step, session.state, len(w.alive())) == (_M.DONE, SessionState.RUNNING, 1), row.note
        assert "pause" not in run.second.asks
        assert run.second.step > target.saved


class _UnnamedSteps:
    """A store without steps in its names: the job on the target knows the step of its save by reading it."""

    def __init__(self, run: Run, saved: int) -> None:
        self.run, self.saved, self.source, self.target = run, saved, run._source, run._target
        run._source, run._target = self._saves, self._resumes  # type: ignore[method-assign]

    def _saves(self, agent: SandboxAgent, now: datetime) -> None:
        if agent.job == "running" and "upload" in agent.asks and "save" not in self.run.refuses:
            # It saves, trains on for a while, and pauses.
            self.saved = int(agent.step) - 40
            self.run.shelf.put("run/latest/model.pt", 1_000, now)
        puts = self.run.put
        self.run.put = lambda step, size=1_000: None  # type: ignore[method-assign]
        self.source(agent, now)
        self.run.put = puts  # type: ignore[method-assign]
        agent.saved_step = agent.saved_at = None

    def _resumes(self, agent: SandboxAgent, now: datetime) -> None:
        asks = agent.asks
        agent.asks = tuple(f"resume=x-{self.saved}" if ask.startswith("resume=") else ask for ask in asks)
        self.target(agent, now)
        agent.asks = asks
