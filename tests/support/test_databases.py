"""One PostgreSQL database serves test after test, and each finds it as a clone of the template would be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

import pytest
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.events import record
from ledger.core.writes import book
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.models import Base, Facet
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import PostgresTemplate, ReusedDatabase

SCHEMA = """
SELECT 'column', table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'trigger', tgname, tgenabled::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'function', proname, '', prosrc FROM pg_proc WHERE oid >= 16384
UNION ALL SELECT 'revision', version_num, '', '' FROM alembic_version ORDER BY 1, 2, 3
"""
APPEND_ONLY = ("ledger_entries", "events", "approvals", "grants", "instances")


@pytest.fixture(scope="module")
def reused(pg_template: PostgresTemplate) -> Iterator[ReusedDatabase]:
    """A database of this module's own, beside the one that other tests use."""
    with ReusedDatabase(pg_template, "reused_here") as made:
        yield made


@asynccontextmanager
async def emptied(reused: ReusedDatabase) -> AsyncIterator[Database]:
    """The ledger as the next test gets it."""
    db = Database(reused.empty())
    yield db
    await db.close()


async def fill(tx: AsyncSession) -> int:
    """A row in every append-only table, and one whose number the database chooses, which is returned."""
    instance = await rows.instance(tx)
    record(tx, at=START, actor=SYSTEM, subject=instance.id, kind=EventKind.INSTANCE_MOVED)
    await book(tx, key="k", kind=EntryKind.ACCRUE, debit="a", credit="b", amount_usd=Decimal(1), at=START)
    facet = Facet(owner="", cloud="", gpu="", label="", tool="")
    tx.add(facet)
    await tx.flush()
    return facet.id


async def left(db: Database) -> dict[str, int]:
    """The tables with rows, and how many."""
    async with db.read() as tx:
        counted = {
            table.name: await tx.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
        }
    return {name: number for name, number in counted.items() if number}


async def pages(db: Database) -> int:
    """How many pages the events take, deleted ones among them."""
    async with db.read() as tx:
        return int(await tx.scalar(text("SELECT pg_relation_size('events') / 8192")) or 0)


async def schema(db: Database) -> list[tuple[str, ...]]:
    """Columns, triggers, functions and the revision, by their definitions."""
    async with db.read() as tx:
        return [tuple(row) for row in await tx.execute(text(SCHEMA))]


async def is_guarded(db: Database, table: str) -> None:
    """The triggers refuse to change and to delete what is in the table, row by row and as a whole."""
    rows_of = Base.metadata.tables[table]
    for statement in (update(rows_of).values(id="another"), delete(rows_of), text(f"TRUNCATE {table} CASCADE")):
        with pytest.raises(IntegrityError, match=r"append-only|never|keeps its"):
            async with db.write() as tx:
                await tx.execute(statement)


async def test_append_only_tables_are_empty_after_a_reset_and_guarded_as_before(reused: ReusedDatabase) -> None:
    for _ in range(2):
        async with emptied(reused) as db:
            assert await left(db) == {}
            async with db.write() as tx:
                assert await fill(tx) == 1
            assert set(APPEND_ONLY) <= (await left(db)).keys()
            for table in APPEND_ONLY:
                await is_guarded(db, table)
    async with emptied(reused) as db:
        assert await left(db) == {}
        async with db.read() as tx:
            assert await tx.scalar(text("SHOW session_replication_role")) == "origin"


@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER events_no_delete ON events",
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "ALTER TABLE events ADD COLUMN colour TEXT",
        "CREATE TABLE more (id INTEGER)",
        "CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "UPDATE alembic_version SET version_num = '0001'",
    ],
)
async def test_a_test_that_changes_the_schema_changes_it_for_itself_only(reused: ReusedDatabase, change: str) -> None:
    async with emptied(reused) as db:
        before = await schema(db)
        async with db.write() as tx:
            await fill(tx)
            await tx.execute(text(change))
    async with emptied(reused) as db:
        assert await left(db) == {}
        assert await schema(db) == before


async def test_a_test_that_left_a_transaction_open_keeps_nobody_waiting(reused: ReusedDatabase) -> None:
    async with emptied(reused) as db, AsyncExitStack() as stack:
        tx = await stack.enter_async_context(db.write())
        await fill(tx)
        async with emptied(reused) as next_db:
            assert await left(next_db) == {}
            async with next_db.write() as other:
                await fill(other)
        with pytest.raises(DBAPIError):
            await stack.aclose()


async def test_what_grew_is_cleared_up(reused: ReusedDatabase) -> None:
    async with emptied(reused) as db:
        async with db.write() as tx:
            for _ in range(400):
                record(tx, at=START, actor=SYSTEM, subject="ins_1", kind=EventKind.INSTANCE_MOVED, reason="x" * 400)
        assert await pages(db) > 16
    async with emptied(reused) as db:
        assert await pages(db) == 0
