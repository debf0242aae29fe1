"""What goes wrong while a run moves: it continues from a verified copy, with one trainer and a clear message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.rules.relocation.steps import LIMITS_S
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.kernel.steps.relocation_step import MigrationStep
from tests.services.relocation.run import LONGEST_TWO, SOURCE, TARGET, Run, running
from tests.support.world import World

_M = MigrationStep
EVERY = (_M.CHECKED, _M.PROVISIONED, _M.READY, _M.VERIFIED, _M.PRESENT, _M.STARTED, _M.ADVANCED, _M.DESTROYED)


async def goes_on(run: Run, why: str) -> None:
    """The move failed, the source trains again, the target is gone, and the owner has read why."""
    at = run.first.step
    row = await run.over()
    assert row.step is _M.FAILED, row.step
    source, target = await run.sessions()
    assert source.state is SessionState.RUNNING
    for _ in range(8):
        await run.tick()
    assert run.first.job == "running"
    assert run.first.step > at
    if target is not None:
        assert target.state in (SessionState.TERMINATED, SessionState.FAILED)
        assert target.end_code == EndReason.MIGRATION_FAILED
    assert len(run.w.alive()) == 1
    assert run.two_for < LONGEST_TWO
    texts = await run.texts()
    assert why in texts[0], texts
    assert "continues" in texts[-1], texts


@pytest.mark.slow
@pytest.mark.parametrize("at", EVERY)
async def test_the_process_is_killed_after_a_step(w: World, at: MigrationStep) -> None:
    async with running(w) as run:
        await run.approved()
        for _ in range(800):
            row = await run.migration()
            assert row is not None
            if row.step in (at, _M.DONE, _M.FAILED):
                break
            await run.tick()
        run.crash()
        row = await run.over()
        assert row.step is _M.DONE, row.note
        assert len(w.alive()) == 1
        assert run.two_for < LONGEST_TWO
        assert len(await run.texts()) == 1


@pytest.mark.slow
async def test_the_process_is_down_for_longer_than_any_step(w: World) -> None:
    async with running(w, hours=10) as run:
        await run.approved()
        await run.until(_M.PROVISIONED)
        w.clock.advance(timedelta(seconds=max(LIMITS_S.values()) + 600))
        run.crash()
        row = await run.over()
        assert row.step is _M.DONE, row.note


@pytest.mark.slow
async def test_a_target_that_never_boots_is_ended_and_nothing_else_changes(w: World) -> None:
    w.tune(replacements=0)
    async with running(w, hours=6) as run:
        w.arm("never_boots", "vast")
        await run.approved()
        await goes_on(run, "new machine")
        assert "pause" not in run.first.asks


@pytest.mark.slow
async def test_a_job_that_does_not_pause_stays_where_it_is(w: World) -> None:
    async with running(w, hours=6) as run:
        run.refuses.add("pause")
        await run.approved()
        await goes_on(run, "The job has not paused".lower())


@pytest.mark.slow
async def test_a_stale_checkpoint_is_no_save(w: World) -> None:
    async with running(w, hours=6) as run:
        run.refuses.add("save")
        await run.approved()
        await goes_on(run, "older than")


@pytest.mark.slow
async def test_a_store_that_is_down_stops_the_move(w: World) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.PROVISIONED)
        run.shelf.down = True
        await goes_on(run, "can't be read")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refused", "why"),
    [("fetch", "still being fetched"), ("start", "not started"), ("train", "past its save")],
)
async def test_a_target_that_does_not_go_on_is_ended_before_the_source_resumes(
    w: World, refused: str, why: str
) -> None:
    async with running(w, hours=8) as run:
        run.refuses.add(refused)
        await run.approved()
        await goes_on(run, why)


@pytest.mark.slow
@pytest.mark.parametrize("at", [_M.PROVISIONED, _M.READY, _M.VERIFIED, _M.PRESENT, _M.STARTED])
async def test_a_source_that_is_lost_half_way_leaves_its_run_to_the_target(w: World, at: MigrationStep) -> None:
    async with running(w, hours=6) as run:
        if at is _M.STARTED:
            run.refuses.add("train")
        await run.approved()
        await run.until(at)
        row = await run.row(SOURCE)
        w.clouds["vast"].disturb(str(row.ref), "vanish")
        run.refuses.clear()
        moved = await run.over()
        assert moved.step is _M.DONE, moved.note
        source, target = await run.sessions()
        assert source.state is SessionState.TERMINATED
        assert target is not None
        assert target.state is SessionState.RUNNING
        assert len(w.alive()) == 1
        assert run.second.step > int(moved.saved_step or 0)
        assert len([one for one in (await w.books()).instances if one.request_id == run.request_id]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", [_M.PROVISIONED, _M.VERIFIED, _M.PRESENT])
async def test_a_target_that_is_lost_half_way_leaves_the_run_to_the_source(w: World, at: MigrationStep) -> None:
    w.tune(replacements=0)
    async with running(w, hours=6) as run:
        run.refuses.add("train")
        await run.approved()
        await run.until(at)
        row = await run.row(TARGET)
        assert row.state is InstanceState.LIVE
        w.clouds["vast"].disturb(str(row.ref), "vanish")
        await goes_on(run, "new machine")


async def test_a_rejected_request_leaves_the_run_alone(w: World) -> None:
    async with running(w) as run:
        assert (await run.ask()).ok
        await w.settle()
        await w.decide(run.target_id, action="reject", reason="too dear")
        row = await run.over()
        assert (row.step, "too dear" in row.note) == (_M.FAILED, True)
        source, target = await run.sessions()
        assert (source.state, target, await run.texts()) == (SessionState.RUNNING, None, [])


@pytest.mark.slow
async def test_an_owner_who_ends_the_source_ends_the_move(w: World) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.READY)
        await w.end(run.request_id)
        row = await run.over()
        assert (row.step, "was ended" in row.note) == (_M.FAILED, True)
        assert w.alive() == []


@pytest.mark.slow
async def test_an_undecided_request_is_cancelled_when_the_source_ends(w: World) -> None:
    async with running(w, hours=6) as run:
        assert (await run.ask()).ok
        await w.settle()
        await w.end(run.request_id)
        await run.over()
        assert (await w.view(run.target_id)).request.state is RequestState.CANCELLED
        assert w.alive() == []
