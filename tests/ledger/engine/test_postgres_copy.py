"""A PostgreSQL ledger is dumped and replaced by the server's own programs, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.engine import URL

from ledger.engine.copied_journal import CopiedJournal, HashedEvent, NewestHash
from ledger.engine.db import Database
from ledger.engine.postgres_copy import (
    BATCH,
    ClientProblem,
    client,
    dump_ledger,
    put_in_place,
    read_journal,
    server_state,
)
from ledger.kernel.event_kind import EventKind
from ledger.models import EventHash
from ledger.queries.event_order import number_events
from migrations.run import newest
from tests.ledger.engine.schema import expected, triggers
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import PostgresTemplate, path_with_programs

TRICKY = "a\ttab, a\nline, a\\slash, a\rreturn, \x0b, \u2028 and \\N"


@pytest.fixture
async def db(pg_template: PostgresTemplate, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    """A ledger of the test's own."""
    monkeypatch.setenv("PATH", path_with_programs())
    async with pg_template.clone() as url:
        database = Database(url)
        yield database
        await database.close()


def at(db: Database) -> URL:
    return make_url(db.url)


async def major(db: Database) -> int:
    async with db.read() as tx:
        return (await server_state(tx)).major


async def filled(db: Database) -> int:
    """Write more events than are read at a time, two of them hashed, and return the server's version."""
    async with db.write() as tx:
        for number in range(BATCH + 2):
            await rows.event(tx, EventKind.REQUEST_MADE, "req_1", id=f"evt_{number:05}", at=START, reason=TRICKY)
    for _ in range(3):
        async with db.write() as tx:
            await number_events(tx, START)
    async with db.write() as tx:
        for number in (1, 2):
            tx.add(EventHash(event_id=f"evt_{number:05}", subject="req_1", number=number, hash=f"{number}", at=START))
    version = await major(db)
    await db.close()
    return version


async def test_a_dump_s_journal_reads_as_the_ledger_s(db: Database, tmp_path: Path) -> None:
    version = await filled(db)
    dump_ledger(at(db), tmp_path / "ledger.dump", version)
    read_journal(tmp_path / "ledger.dump", tmp_path / "journal.db", version)
    with CopiedJournal(tmp_path / "journal.db") as journal:
        assert (journal.schema(), journal.newest(), journal.put_in()) == ((newest(), "0078"), NewestHash(3, "2"), 1)
        first, second = journal.chains()
    assert first.content is not None
    assert (first.content["reason"], first.content["at"], first.content["data"]) == (TRICKY, START.isoformat(), {})
    assert second.content is not None
    assert (second.content["id"], second.hash) == ("evt_00002", "2")
    async with db.write() as tx:
        await tx.execute(text("SET LOCAL session_replication_role = replica"))
        await tx.execute(text("DELETE FROM events WHERE id = 'evt_00001'"))
    dump_ledger(at(db), tmp_path / "less.dump", version)
    read_journal(tmp_path / "less.dump", tmp_path / "less.db", version)
    with CopiedJournal(tmp_path / "less.db") as journal:
        assert next(journal.chains()) == HashedEvent("req_1", "1", None)


async def test_a_dump_replaces_a_ledger_and_its_triggers_hold(db: Database, tmp_path: Path) -> None:
    version = await filled(db)
    dump_ledger(at(db), tmp_path / "ledger.dump", version)
    async with db.write() as tx:
        await rows.event(tx, EventKind.REQUEST_MADE, "req_2", id="evt_later")
    await db.close()
    put_in_place(at(db), tmp_path / "ledger.dump", "before_restore_1", version)
    count = "SELECT count(*) FROM {}events"
    async with db.read() as tx:
        assert await tx.scalar(text(count.format(""))) == BATCH + 2
        assert await tx.scalar(text(count.format("before_restore_1."))) == BATCH + 3
    assert await triggers(db) == expected(db)
    await db.close()
    put_in_place(at(db), tmp_path / "ledger.dump", "before_restore_2", version)  # What is aside is in no dump.
    dump_ledger(at(db), tmp_path / "again.dump", version)
    assert (tmp_path / "again.dump").stat().st_size < 2 * (tmp_path / "ledger.dump").stat().st_size
    with pytest.raises(ClientProblem, match=r'^psql failed: schema "before_restore_2" already exists$'):
        put_in_place(at(db), tmp_path / "ledger.dump", "before_restore_2", version)
    async with db.read() as tx:
        assert await tx.scalar(text(count.format(""))) == BATCH + 2
        with pytest.raises(ClientProblem, match=r"^psql failed: somebody is connected to this ledger$"):
            await asyncio.to_thread(put_in_place, at(db), tmp_path / "ledger.dump", "before_restore_3", version)
        assert (await server_state(tx)).has_tables
        assert (await server_state(tx)).connected == 0


async def test_a_damaged_dump_changes_nothing(db: Database, tmp_path: Path) -> None:
    version = await filled(db)
    dump_ledger(at(db), tmp_path / "ledger.dump", version)
    whole = (tmp_path / "ledger.dump").read_bytes()
    for name, content in (("half", whole[: len(whole) * 2 // 3]), ("none", b"text")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ClientProblem, match=r"^pg_restore failed: "):
            put_in_place(at(db), tmp_path / name, "before_restore_1", version)
    async with db.read() as tx:
        assert await tx.scalar(text("SELECT count(*) FROM events")) == BATCH + 2


async def test_a_server_that_refuses_is_named_without_the_password(db: Database, tmp_path: Path) -> None:
    nowhere = at(db).set(database="no_such_ledger", password="hunter2")
    with pytest.raises(ClientProblem, match=r'pg_dump failed: .*database "no_such_ledger" does not exist') as refused:
        await asyncio.to_thread(dump_ledger, nowhere, tmp_path / "dump", 1)
    assert "hunter2" not in str(refused.value)


def test_a_program_that_is_missing_older_or_silent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientProblem, match=r"^psql is not on PATH\. Install PostgreSQL's client programs, version 16"):
        client("psql", 16)
    program = tmp_path / "psql"
    for line, version in (("echo 'psql (PostgreSQL) 15.18 (Debian)'", "15"), ("true", "unknown")):
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        with pytest.raises(ClientProblem, match=rf"psql is version {version}, and version 16 or newer is needed"):
            client("psql", 16)
    program.write_text("#!/bin/sh\n[ $1 = --version ] && echo 'psql (PostgreSQL) 16.1' && exit\nexit 3\n")
    assert client("psql", 16) == str(program)
    program.rename(tmp_path / "pg_dump")
    with pytest.raises(ClientProblem, match="pg_dump failed: it said nothing"):
        dump_ledger(make_url("postgresql+asyncpg://u@127.0.0.1:1/x?ssl=disable"), tmp_path / "dump", 16)
