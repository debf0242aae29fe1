"""How much work waits."""

from __future__ import annotations

from ledger.core.moves import move
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.states import InboxState, InstanceState, OrphanState, RequestState
from ledger.models import Inbox, Orphan
from ledger.queries.metrics import waiting_rows
from tests.support import rows
from tests.support.clock import START


async def test_how_much_work_waits(db: Database) -> None:
    async with db.read() as tx:
        assert await waiting_rows(tx) == {"inbox": 0, "quotes": 0, "creates": 0, "outbox": 0}
    async with db.write() as tx:
        await rows.request(tx, RequestState.QUOTING)
        await rows.request(tx, RequestState.PENDING)
        await rows.instance(tx, InstanceState.READY)
        stray = await rows.stray(tx)
        await move(tx, Orphan, stray.id, OrphanState.CONDEMNED, at=START, actor=SYSTEM)
        for key, state in (("k1", InboxState.NEW), ("k2", InboxState.NEW), ("k3", InboxState.DONE)):
            tx.add(Inbox(key=key, kind="command", body={}, answer={}, state=state, received_at=START))
    async with db.read() as tx:
        assert await waiting_rows(tx) == {"inbox": 2, "quotes": 1, "creates": 1, "outbox": 1}
