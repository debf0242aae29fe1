"""A run moves in eight stored steps, with one copy at least and one trainer at most."""

from __future__ import annotations

import pytest

from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import MigrationStep
from tests.services.relocation.run import LONGEST_TWO, running
from tests.support.world import World

_M = MigrationStep


@pytest.mark.slow
async def test_a_run_moves_to_another_machine(w: World) -> None:
    async with running(w) as run:
        before = run.first
        await run.approved()
        row = await run.over()
        assert row.step is _M.DONE, row.note
        assert [one for one in run.seen if one is not _M.CHECKED] == [
            _M.PROVISIONED,
            _M.READY,
            _M.VERIFIED,
            _M.PRESENT,
            _M.STARTED,
            _M.ADVANCED,
            _M.DESTROYED,
            _M.DONE,
        ]
        source, target = await run.sessions()
        assert (source.state, source.end_code) == (SessionState.TERMINATED, EndReason.MIGRATED)
        assert target is not None
        assert target.state is SessionState.RUNNING
        assert len(w.alive()) == 1
        assert before not in run.agents
        assert run.second.step > int(row.saved_step or 0) > 0
        assert row.saved_from == f"s3://bucket/run/step-{row.saved_step}"
        assert run.two_for < LONGEST_TWO
        (text,) = await run.texts()
        assert "moved to" in text
        for word in ("Continuation context", "python train.py", row.saved_from, "RESUME_FROM"):
            assert word in row.context
