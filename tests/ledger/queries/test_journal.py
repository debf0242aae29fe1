"""The journal."""

from __future__ import annotations

from ledger.core.events import record
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.queries.journal import latest_events, reasons_of
from tests.support.clock import START


async def test_the_journal_keeps_the_order_in_which_things_happened(db: Database) -> None:
    async with db.write() as tx:
        for n in range(50):
            record(tx, at=START, actor=SYSTEM, subject=f"s{n % 2}", kind=EventKind.REQUEST_MADE, reason=str(n))
    async with db.read() as tx:
        assert await reasons_of(tx, "s0", [EventKind.REQUEST_MADE]) == [str(n) for n in range(0, 50, 2)]
        assert [one.reason for one in await latest_events(tx, "s1", EventKind.REQUEST_MADE, 2)] == ["49", "47"]
