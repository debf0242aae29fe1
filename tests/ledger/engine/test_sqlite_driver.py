"""The SQLite driver: nothing that may wait runs on the loop, and a cancelled task leaves no lock behind."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import insert

from ledger.engine.db import Database
from ledger.engine.sqlite_driver import BEGIN_WRITE, Connection
from ledger.models import Mark
from tests.support.clock import START


@pytest.fixture
async def other(sqlite_db_url: str, sqlite_db: Database) -> AsyncIterator[Database]:
    """The same file, as another process has it."""
    database = Database(sqlite_db_url)
    yield database
    await database.close()


async def names(db: Database) -> list[str]:
    async with db.read() as tx:
        return sorted((await tx.execute(Mark.__table__.select())).scalars())


async def add(db: Database, name: str) -> None:
    async with db.write() as tx:
        tx.add(Mark(name=name, value="", at=START))
        await tx.flush()


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_the_loop_goes_on_while_another_process_writes(sqlite_db: Database, other: Database) -> None:
    async with other.write() as tx:
        tx.add(Mark(name="first", value="", at=START))
        await tx.flush()
        waiting = asyncio.create_task(add(sqlite_db, "second"))
        await turns(200)  # Each turn would last the whole busy timeout if the loop were blocked.
        assert not waiting.done()
        assert await names(sqlite_db) == []
    await waiting
    assert await names(other) == ["first", "second"]


async def test_a_writer_cancelled_while_it_waits_leaves_no_lock(sqlite_db: Database, other: Database) -> None:
    async with other.write() as tx:
        tx.add(Mark(name="first", value="", at=START))
        await tx.flush()
        waiting = asyncio.create_task(add(sqlite_db, "never"))
        await turns(50)
        for _ in range(3):  # However often it is told.
            waiting.cancel()
            await turns(20)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5):
        await add(other, "second")
        await add(sqlite_db, "third")
    assert await names(other) == ["first", "second", "third"]


async def test_a_commit_is_whole_however_its_task_ends(sqlite_db: Database) -> None:
    """Cancelled at every turn of the loop in turn: a row is there or it is not, and the next writer is not blocked."""
    for turn in range(30):
        task = asyncio.create_task(add(sqlite_db, f"m{turn:02}"))
        await turns(turn)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if outcome is None:
            assert f"m{turn:02}" in await names(sqlite_db)
    async with asyncio.timeout(5):
        await add(sqlite_db, "z")
    assert (await names(sqlite_db))[-1] == "z"


async def test_waiting_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "busy.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE t (x)")
    holder.execute(BEGIN_WRITE)
    connection = await Connection(str(path), busy_timeout_ms=20)
    cursor = connection.cursor()
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        await cursor.execute(BEGIN_WRITE)
    holder.execute("COMMIT")
    holder.close()
    await cursor.execute(BEGIN_WRITE)
    await cursor.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
    assert cursor.rowcount == 2
    await connection.commit()
    with pytest.raises(sqlite3.OperationalError, match="nothing of it was stored"):
        await connection.commit()
    await cursor.execute("SELECT x FROM t")
    assert await cursor.fetchall() == [(1,), (2,)]
    await cursor.close()
    await connection.close()
    await connection.close()


async def test_an_error_of_begin_that_is_not_a_wait_is_raised_at_once(tmp_path: Path) -> None:
    connection = await Connection(str(tmp_path / "t.db"), busy_timeout_ms=15_000)
    cursor = connection.cursor()
    await cursor.execute(BEGIN_WRITE)
    with pytest.raises(sqlite3.OperationalError, match="within a transaction"):
        await cursor.execute(BEGIN_WRITE)
    await connection.rollback()
    await connection.rollback()
    await connection.close()


async def test_many_rows_in_one_statement(sqlite_db: Database) -> None:
    async with sqlite_db.write() as tx:
        await tx.execute(insert(Mark), [{"name": f"n{i:04}", "value": "", "at": START} for i in range(2500)])
    assert len(await names(sqlite_db)) == 2500


async def test_what_the_dialect_asks_of_a_connection_and_its_cursor(tmp_path: Path) -> None:
    connection = await Connection(str(tmp_path / "t.db"), busy_timeout_ms=20)
    cursor = connection.cursor()
    await cursor.execute("CREATE TABLE t (x)")
    await cursor.execute(BEGIN_WRITE)
    for row_id in (1, 2):
        await cursor.execute("INSERT INTO t VALUES (?)", (7,))
        assert cursor.lastrowid == row_id
    # The engine's own BEGIN is the only one, also while it lasts.
    assert connection.isolation_level is None
    assert cursor.arraysize == 1
    await connection.rollback()
    await connection.close()
