"""The step of the schema that gives the journal its one order, on both databases."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.models import Webhook
from ledger.queries.event_order import number_events
from migrations import run
from tests.ledger.engine.test_migrations import content, expected, tables, triggers
from tests.support import rows
from tests.support.clock import START


async def test_events_of_before_are_numbered_by_time_and_a_webhook_continues_where_it_was(db: Database) -> None:
    """Rows are made at the newest revision and taken below the order; above it they have it, and no more is lost."""
    minute = timedelta(minutes=1)
    await run.downgrade(db, "0045")
    async with db.write() as tx:
        for number, minutes in enumerate((3, 1, 2)):
            at = START + minutes * minute
            await rows.event(tx, EventKind.REQUEST_MADE, f"req_{number}", at=at, id=f"evt_{number}")
        values = {"at": at_in(db, START), "seen": at_in(db, START + 3.5 * minute), "no": False, "none": "[]"}
        made = (
            "INSERT INTO webhooks (id, actor, url, topics, note, everything, secret, created_at, created_by, seen_at,"
            " off_reason) VALUES ('whk_1', 'a', 'u', :none, '', :no, 's', :at, 'a', :seen, '')"
        )
        await tx.execute(text(made), values)
    await run.upgrade(db)
    await run.check(db)
    query = text("SELECT position, event_id, numbered_at FROM event_order ORDER BY position")
    async with db.read() as tx:
        found = [tuple(row) for row in await tx.execute(query)]
        # The last minute before the upgrade is read once more.
        assert (await tx.get_one(Webhook, "whk_1")).position == 2
    assert found == [(1, "evt_1", None), (2, "evt_2", None), (3, "evt_0", None)]
    async with db.write() as tx:
        await rows.event(tx, EventKind.REQUEST_MADE, "req_4", id="evt_4")
    async with db.write() as tx:
        await number_events(tx, START)
    assert (await content(db))["event_order"][-1][:2] == (4, "evt_4")
    for change in ("UPDATE event_order SET position = 9 WHERE position = 1", "DELETE FROM event_order"):
        with pytest.raises(DBAPIError, match="event_order is append-only"):
            async with db.write() as tx:
                await tx.execute(text(change))
    await run.downgrade(db, "-1")
    assert not {"event_order", "unnumbered_events"} & await tables(db)
    async with db.write() as tx:  # An older program writes events, and nothing waits for their numbers.
        await rows.event(tx, EventKind.REQUEST_MADE, "req_5")
    await run.upgrade(db)
    assert await triggers(db) == expected(db)


def at_in(db: Database, at: datetime) -> object:
    """A moment as plain SQL gives it to a database."""
    return at.strftime("%Y-%m-%d %H:%M:%S.%f") if db.dialect == "sqlite" else at
