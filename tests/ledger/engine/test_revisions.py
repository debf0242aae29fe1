"""Each revision above the baseline: what it does to the rows that were there, up and back down, on both databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import NotificationKind, NotificationState, OrphanState
from ledger.models import EntryHash, Event, EventHash, LedgerEntry, Notification, SshKey, Webhook
from ledger.queries.event_order import number_events
from migrations import run
from tests.ledger.engine.schema import BASELINE, expected, fingerprint, tables, triggers
from tests.support import rows
from tests.support.clock import START


async def content(db: Database) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, as the database has it, by the table's name."""
    found = {}
    async with db.read() as tx:
        for table in sorted(await tables(db)):
            rows_of_it = (await tx.execute(text(f"SELECT * FROM {table}"))).all()  # noqa: S608 # The catalog's own name.
            found[table] = sorted((tuple(row) for row in rows_of_it), key=repr)
    return found


async def rows_with_renamed_words(db: Database) -> None:
    """A row in each table that revision 0045 renames, and of each kind that it renames."""
    async with db.write() as tx:
        session = await rows.session(
            tx, early_end_at=START, early_end_code="idle", early_end_reason="Idle.", kept_running_until=START
        )
        under = await rows.instance(
            tx, of=session, checkpoint_step=CheckpointStep.HELD, checkpoint_until=START, gate_note="Not verified."
        )
        await rows.request(tx, kind=RequestKind.OVERSPEND, parent_id=session.request_id)
        orphan = await rows.stray(tx, of=under, reason="no row")
        seen = Event(id="evt_1", at=START, actor=SYSTEM.ref, subject=orphan.id, kind=EventKind.ORPHAN_SEEN)
        entry = LedgerEntry(
            id="ent_1", key="k", kind=EntryKind.ACCRUE, debit="a", credit="b", amount_usd=Decimal(1), at=START
        )
        tx.add_all([seen, entry])
        tx.add_all(
            Notification(
                id=f"ntf_{number}",
                kind=kind,
                subject="s",
                destination="U1",
                state=NotificationState.SENT,
                created_at=START,
            )
            for number, kind in enumerate(NotificationKind)
        )
        await tx.flush()
        tx.add(EventHash(event_id=seen.id, subject=seen.subject, number=1, hash="a" * 64, at=seen.at))
        tx.add(EntryHash(number=1, entry_id=entry.id, hash="b" * 64))


async def test_the_glossarys_words_come_and_go_with_every_row_kept(db: Database) -> None:
    """The rows are made at revision 0045, taken down to the old words and brought up again."""
    await rows_with_renamed_words(db)
    await run.downgrade(db, "0045")
    before = await content(db)
    await run.downgrade(db, "0044")
    assert await fingerprint(db) == BASELINE[db.dialect]
    old = await content(db)
    renamed = {"orphans": "strays", "event_hashes": "seals", "entry_hashes": "entry_seals"}
    assert set(old) == {renamed.get(table, table) for table in before}
    for table in sorted(set(before) - {"requests", "notifications"}):
        assert old[renamed.get(table, table)] == before[table]
    async with db.read() as tx:
        sessions = "SELECT cut_code, cut_reason FROM sessions WHERE cut_at IS NOT NULL AND spared_until IS NOT NULL"
        assert tuple((await tx.execute(text(sessions))).one()) == ("idle", "Idle.")
        gates = "SELECT gate FROM instances WHERE gate_until IS NOT NULL"
        assert (await tx.execute(text(gates))).scalar_one() == "held"
        kinds = set((await tx.execute(text("SELECT kind FROM notifications"))).scalars())
        assert kinds - set(NotificationKind) == {
            "stray.found",
            "session.unattended",
            "session.held",
            "session.last_call",
        }
        asked = "SELECT kind FROM requests WHERE parent_id IS NOT NULL"
        assert (await tx.execute(text(asked))).scalar_one() == "drift_reconfirm"
    await run.upgrade(db, "0045")
    assert await content(db) == before
    await run.upgrade(db)
    await run.check(db)
    assert await triggers(db) == expected(db)


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
    assert await triggers(db) == expected(db)


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
    await run.downgrade(db, "0045")
    assert not {"event_order", "unnumbered_events"} & await tables(db)
    async with db.write() as tx:  # An older program writes events, and nothing waits for their numbers.
        await rows.event(tx, EventKind.REQUEST_MADE, "req_5")
    await run.upgrade(db)
    assert await triggers(db) == expected(db)


async def test_each_person_keeps_every_key_on_the_way_up_and_the_newest_one_on_the_way_down(db: Database) -> None:
    async with db.write() as tx:
        for owner, name, hours in (("a", "x", 0), ("a", "y", 1), ("b", "x", 0)):
            at = START + timedelta(hours=hours)
            tx.add(SshKey(owner=owner, public_key=f"key {name}", fingerprint=name, created_at=at))
    query = text("SELECT owner, public_key FROM ssh_keys ORDER BY owner, public_key")
    await run.downgrade(db, "0051")
    async with db.read() as tx:
        assert [tuple(row) for row in await tx.execute(query)] == [("a", "key y"), ("b", "key x")]
    await run.upgrade(db)
    await run.check(db)
    async with db.write() as tx:
        tx.add(SshKey(owner="a", public_key="key x", fingerprint="x", created_at=START))
    async with db.read() as tx:
        assert [tuple(row) for row in await tx.execute(query)] == [("a", "key x"), ("a", "key y"), ("b", "key x")]
        (kept,) = [one.created_at for one in await tx.scalars(select(SshKey)) if one.public_key == "key y"]
    assert kept == START + timedelta(hours=1)


def at_in(db: Database, at: datetime) -> object:
    """A moment as plain SQL gives it to a database."""
    return at.strftime("%Y-%m-%d %H:%M:%S.%f") if db.dialect == "sqlite" else at
