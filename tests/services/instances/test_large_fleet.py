"""A pass over a large fleet reads columns, and the whole row only where there is something to do."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from bot.services.instances import reconcile
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance
from tests.support.world import World


@pytest.fixture(autouse=True)
def every_fleet_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "FEW", 0)


async def _row(w: World) -> Instance:
    (row,) = (await w.books()).instances
    return row


async def _change(w: World, row: Instance, **values: Any) -> None:
    async with w.ctx.db.write() as tx:
        await tx.execute(update(Instance).where(Instance.id == row.id).values(**values))


@pytest.mark.slow
async def test_a_session_boots_runs_and_ends_as_in_a_small_fleet(w: World) -> None:
    await w.running()
    row = await _row(w)
    assert (row.state, row.reachable_at is not None) == (InstanceState.LIVE, True)
    looked = await reconcile.observe(w.ctx, row.cloud)
    assert (looked.listed, looked.urgent) == (1, False)
    await _change(w, row, status="booting")  # So the next listing shows another status.
    await reconcile.observe(w.ctx, row.cloud)
    assert (await _row(w)).status == "running"
    await w.run(3 * 3600, 60)
    books = await w.books()
    assert [one.state for one in books.sessions] == [SessionState.TERMINATED]
    assert [one.state for one in books.instances] == [InstanceState.GONE]


async def test_a_row_that_cannot_be_compared_fails_in_its_own_step(w: World) -> None:
    await w.running()
    row = await _row(w)
    offer = row.offer
    await _change(w, row, offer={"gpu_count": "many"})
    await reconcile.observe(w.ctx, row.cloud)
    assert f"{row.id}/failed" in {one.subject for one in (await w.books()).notifications}
    await _change(w, row, offer=offer)
