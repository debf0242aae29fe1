"""A move never leaves fewer machines than it found, and never fewer good copies, whatever it fails at."""

from __future__ import annotations

import pytest

from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import SessionState
from ledger.kernel.steps.migration_step import MigrationStep
from tests.services.migrations.run import Run, running
from tests.support.world import World

_M = MigrationStep


async def silent_from(run: Run, at: MigrationStep) -> None:
    """The source's agent falls silent in this step, as on a machine whose network is gone."""
    await run.approved()
    await run.until(at)
    run.first.silent = True


@pytest.mark.parametrize("at", [_M.READY, _M.VERIFIED])
async def test_a_source_that_falls_silent_and_is_ended_leaves_its_run_to_the_target(w: World, at: MigrationStep) -> None:
    async with running(w, hours=6) as run:
        if at is _M.VERIFIED:
            run.refuses.add("fetch")
        await silent_from(run, at)
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
