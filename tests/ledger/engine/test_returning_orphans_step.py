"""The step that lets an instance be an orphan more than once, on the way down and up again."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text

from ledger.engine.db import Database
from ledger.kernel.states import OrphanState
from migrations import run
from tests.support import rows
from tests.support.clock import START


async def test_orphans_that_were_one_instance_are_all_kept_on_the_way_down(db: Database) -> None:
    async with db.write() as tx:
        closed = await rows.stray(tx, OrphanState.GONE, ref="7")
        again = await rows.stray(tx, ref="7", at=START + timedelta(hours=1))
    await run.downgrade(db, "0045")
    async with db.read() as tx:
        kept = {row.id: row.ref for row in await tx.execute(text("SELECT id, ref FROM orphans"))}
    assert kept == {closed.id: f"7#{closed.id}", again.id: "7"}
    await run.upgrade(db)
    await run.check(db)
