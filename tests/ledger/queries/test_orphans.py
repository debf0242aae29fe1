"""Orphans, and those that wait for an operator."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import OrphanState
from ledger.queries.orphans import (
    CountedGone,
    add_orphan,
    counted_gone,
    every_orphan,
    orphan_by_id,
    quarantined,
)
from ledger.queries.recovery.older import Recovery, recovery
from tests.support import rows
from tests.support.clock import START

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


async def test_orphans_that_wait_for_an_operator(db: Database) -> None:
    async with db.write() as tx:
        late = await rows.stray(tx, OrphanState.QUARANTINED, at=START + MINUTE)
        early = await rows.stray(tx, OrphanState.QUARANTINED, of=await rows.instance(tx), account="acct-2")
        seen = await rows.stray(tx, OrphanState.SEEN, at=START + 2 * MINUTE)
        gone = await rows.stray(tx, OrphanState.GONE, at=START + 3 * MINUTE)
        condemned = await rows.stray(tx, OrphanState.CONDEMNED)
    async with db.read() as tx:
        assert await recovery(tx) == Recovery(1, late.first_seen_at)
        assert [one.id for one in await quarantined(tx)] == [early.id, late.id]
        assert [one.id for one in await every_orphan(tx)] == [late.id, early.id, gone.id, seen.id, condemned.id]
        found = await orphan_by_id(tx, gone.id)
        assert found is not None
        assert found.ref == gone.ref
        assert await orphan_by_id(tx, "stray_none") is None


async def test_an_orphan_is_stored_once_an_account_until_it_counts_as_gone(db: Database) -> None:
    facts: dict[str, Any] = {
        "cloud": "vast", "account": "acct-1", "label": "tst1", "state": OrphanState.SEEN, "price_usd_h": Decimal(1),
        "first_seen_at": START, "last_seen_at": START,
    }  # fmt: skip
    async with db.write() as tx:
        assert await add_orphan(tx, id="stray_1", ref="7", **facts)
        assert not await add_orphan(tx, id="stray_2", ref="7", **facts | {"price_usd_h": Decimal(9)})
        assert await add_orphan(tx, id="stray_3", ref="7", **facts | {"account": "acct-2"})
    async with db.read() as tx:
        found = {one.id: (one.price_usd_h, one.version, one.absent_at) for one in await every_orphan(tx)}
        assert found == {"stray_1": (Decimal(1), 1, []), "stray_3": (Decimal(1), 1, [])}
        assert await counted_gone(tx, "vast", ["tst1"]) == {}
    gone = {"state": OrphanState.GONE, "ended_at": START + HOUR}
    async with db.write() as tx:
        assert await add_orphan(tx, id="stray_4", ref="8", **facts | gone)
        assert await add_orphan(tx, id="stray_5", ref="8", **facts | gone | {"ended_at": START})
        assert await add_orphan(tx, id="stray_6", ref="8", **facts)
        assert not await add_orphan(tx, id="stray_7", ref="8", **facts)
    async with db.read() as tx:
        key = ("8", "tst1")
        assert await counted_gone(tx, "vast", ["tst1"]) == {key: CountedGone(START + HOUR, condemned=False)}
        assert await counted_gone(tx, "runpod", ["tst1"]) == {}
        assert await counted_gone(tx, "vast", []) == {}
    async with db.write() as tx:
        after = str(OrphanState.CONDEMNED)
        await rows.event(tx, EventKind.ORPHAN_MOVED, "stray_5", after=after)
    async with db.read() as tx:
        assert await counted_gone(tx, "vast", ["tst1"]) == {key: CountedGone(START + HOUR, condemned=True)}
