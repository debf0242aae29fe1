"""After a lost ledger: a volume of ours is found by its label, waits for an operator, and is kept as a volume."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import OrphanState, SessionState
from tests.services.instances.test_adoption import keep
from tests.services.sessions.volumes.scene import RUNPOD, there
from tests.support.world import BOB, World


@pytest.mark.both_databases
@pytest.mark.slow
async def test_it_is_quarantined_and_never_deleted_at_sight_and_an_approver_keeps_it(w: World) -> None:
    label = w.ctx.labels.mint(new_id("req", w.clock.now()), 1)
    account = w.clouds["runpod"].account  # type: ignore[attr-defined]
    ours = account.add_volume(f"volume-data-{label}", Decimal(20), "EU-RO-1")
    theirs = account.add_volume("somebodys", Decimal(20), "EU-RO-1")
    await w.run(120, 30)
    (orphan,) = (await w.books()).orphans
    assert (orphan.cloud, orphan.ref, orphan.state) == (RUNPOD, ours.ref, OrphanState.QUARANTINED)
    assert "orphan.found" in w.board.kinds()
    kept = await keep(w, orphan.id, BOB)
    assert kept.ok, kept
    await w.run(60, 20)
    (session,) = (await w.books()).sessions
    (request,) = (await w.books()).requests
    assert (session.gpu, session.state, request.kind) == ("volume:data", SessionState.RUNNING, RequestKind.VOLUME)
    assert there(w) == [ours.ref, theirs.ref]
    await w.run(7200, 1800)
    await w.run(300, 20)
    assert there(w) == [theirs.ref]
    theirs.end(w.clock.now(), 0.0)
