"""Connections: files nobody else reads, one writer at a time, snapshots, and no network in a transaction."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from bot.rules.jobs.stored import job_of
from ledger.engine.db import Database, DatabaseUrlError, NestedWrite, insert_for, may_lock
from ledger.kernel.network_guard import NetworkInTransaction, forbid_in_transaction
from ledger.kernel.states import RequestState
from ledger.models import Mark, Request
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import sqlite_url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("a file", "cannot be read; write sqlite[+]aiosqlite"),
        ("mysql+aiomysql://h/d", "starts with 'mysql[+]aiomysql'; use sqlite[+]aiosqlite"),
        ("postgresql://h/d", "starts with 'postgresql'; use sqlite[+]aiosqlite"),
        ("sqlite:///f.db", "starts with 'sqlite'"),
        ("sqlite+aiosqlite://", "in memory is lost"),
        ("sqlite+aiosqlite:///:memory:", "name a file"),
    ],
)
def test_other_urls_are_refused(url: str, said: str) -> None:
    with pytest.raises(DatabaseUrlError, match=said):
        Database(url)


async def test_files_are_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.db"
    db = Database(sqlite_url(path))
    async with db.write() as tx:
        await tx.execute(text("CREATE TABLE t (x)"))
    async with db.read() as tx:
        await tx.execute(text("SELECT * FROM t"))
        modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in path.parent.iterdir()}
    await db.close()
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_sqlite_is_set_up_to_survive_a_power_cut(sqlite_db: Database) -> None:
    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "busy_timeout": 15_000,
    }
    for session in (sqlite_db.write(), sqlite_db.read()):
        async with session as tx:
            assert {name: await tx.scalar(text(f"PRAGMA {name}")) for name in wanted} == wanted


async def test_a_read_cannot_write(db: Database) -> None:
    async with db.read() as tx:
        tx.add(Mark(name="m", value="", at=START))
        with pytest.raises(DBAPIError, match=r"readonly|read-only"):
            await tx.flush()


async def test_a_read_is_one_consistent_state(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.request(tx)
    async with db.read() as tx:
        assert len((await tx.scalars(select(Request.id))).all()) == 1
        async with db.write() as writing:
            await rows.request(writing)
        assert (await tx.scalars(select(Request.id))).all() == [first.id]
    async with db.read() as tx:
        assert len((await tx.scalars(select(Request.id))).all()) == 2


async def test_an_error_rolls_back_and_frees_the_writer(db: Database) -> None:
    async def fail() -> None:
        async with db.write() as tx:
            tx.add(Mark(name="m", value="", at=START))
            await tx.flush()
            raise OSError("stop")

    with pytest.raises(OSError, match="stop"):
        await fail()
    async with db.write() as tx:
        assert await tx.get(Mark, "m") is None


async def test_a_nested_write_is_an_error_and_not_a_deadlock(db: Database) -> None:
    async with db.write():
        with pytest.raises(NestedWrite, match="writing already"):
            async with db.write():
                pass
    async with db.write() as tx:
        tx.add(Mark(name="m", value="", at=START))


async def test_writes_of_other_tasks_are_not_nested(db: Database) -> None:
    async def other() -> None:
        async with db.write() as tx:
            tx.add(Mark(name="other", value="", at=START))

    async with db.write() as tx:
        tx.add(Mark(name="own", value="", at=START))
        waiting = asyncio.create_task(other())  # It inherits this task's context.
    await waiting
    async with db.read() as tx:
        assert set(await tx.scalars(select(Mark.name))) == {"own", "other"}


async def test_a_cancelled_writer_leaves_nothing_and_blocks_nobody(db: Database) -> None:
    inside = asyncio.Event()

    async def write_for_ever() -> None:
        async with db.write() as tx:
            tx.add(Mark(name="half", value="", at=START))
            await tx.flush()
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write_for_ever())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10), db.write() as tx:
        assert await tx.get(Mark, "half") is None


async def test_writers_cancelled_at_any_moment_block_nobody(sqlite_db: Database) -> None:
    async def write(number: int) -> None:
        async with sqlite_db.write() as tx:
            tx.add(Mark(name=str(number), value="", at=START))

    for rounds in range(40):
        task = asyncio.create_task(write(rounds))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(20), sqlite_db.write() as tx:
        tx.add(Mark(name="last", value="", at=START))


async def test_sqlite_writers_take_turns_in_order_and_the_first_goes_first(sqlite_db: Database) -> None:
    order: list[str] = []

    async def write(name: str, *, first: bool = False) -> None:
        async with sqlite_db.write(first=first):
            order.append(name)

    async with sqlite_db.write():
        waiting = [
            asyncio.create_task(write("a")),
            asyncio.create_task(write("b")),
            asyncio.create_task(write("inbox", first=True)),
            asyncio.create_task(write("c")),
            asyncio.create_task(write("inbox again", first=True)),
        ]
        await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["inbox", "inbox again", "a", "c"]


async def test_a_turn_that_was_handed_to_a_cancelled_writer_is_passed_on(sqlite_db: Database) -> None:
    async def write() -> None:
        async with sqlite_db.write():
            pass

    async with sqlite_db.write():
        waiting = asyncio.create_task(write())
        await asyncio.sleep(0)
    # The turn is given, the waiter has not run yet.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5):
        await write()


async def test_ports_refuse_to_run_inside_a_transaction(db: Database) -> None:
    async with db.write():
        with pytest.raises(NetworkInTransaction, match="a cloud was called inside a ledger transaction"):
            forbid_in_transaction("a cloud")
    async with db.read():
        with pytest.raises(NetworkInTransaction):
            forbid_in_transaction("a cloud")
    forbid_in_transaction("a cloud")


async def test_even_a_bare_socket_does_not_connect_inside_a_transaction(db: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        async with db.write() as tx:
            tx.add(Mark(name="m", value="", at=START))
            await tx.flush()
            with pytest.raises(NetworkInTransaction, match="connect to"):
                await asyncio.open_connection(*address)
        _, writer = await asyncio.open_connection(*address)
        writer.close()
        await writer.wait_closed()


async def test_rows_are_locked_in_writes_on_postgresql_only(db: Database) -> None:
    async with db.write() as tx:
        assert may_lock(tx) is (db.dialect == "postgresql")
    async with db.read() as tx:
        assert not may_lock(tx)


async def test_both_dialects_know_on_conflict(db: Database) -> None:
    for insert in (db.insert(Mark),):
        async with db.write() as tx:
            for value in ("1", "2"):
                statement = insert.values(name="m", value=value, at=START)
                await tx.execute(
                    statement.on_conflict_do_update(index_elements=["name"], set_={"value": statement.excluded.value})
                )
            again = insert_for(tx, Mark).values(name="m", value="3", at=START)
            await tx.execute(again.on_conflict_do_nothing(index_elements=["name"]))
    async with db.read() as tx:
        assert (await tx.get_one(Mark, "m")).value == "2"


async def test_rows_stay_readable_after_the_transaction(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.request(tx, RequestState.PENDING)
    assert (row.state, row.requester) == (RequestState.PENDING, rows.ADA.ref)
    async with db.read() as tx:
        kept = await tx.get_one(Request, row.id)
    assert kept.job == row.job
    assert job_of(kept.job).hours == 2


async def test_two_databases_on_one_file_wait_for_each_other(sqlite_db_url: str) -> None:
    one, two = Database(sqlite_db_url), Database(sqlite_db_url)

    async def count_up(db: Database) -> None:
        for _ in range(15):
            async with db.write() as tx:
                mark = await tx.get_one(Mark, "n")
                mark.value = str(int(mark.value) + 1)

    async with one.write() as tx:
        tx.add(Mark(name="n", value="0", at=START))
    await asyncio.gather(count_up(one), count_up(two))
    async with two.read() as tx:
        assert (await tx.get_one(Mark, "n")).value == "30"
    await one.close()
    await two.close()


async def test_on_a_full_disk_what_was_acknowledged_is_stored(sqlite_db: Database) -> None:
    """SQLite undoes the whole transaction when the disk is full, and with it the work of writers that share it."""
    async with sqlite_db.write() as tx:
        pages = int(await tx.scalar(text("PRAGMA page_count")) or 0)
        await tx.execute(text(f"PRAGMA max_page_count={pages + 8}"))
    queued = asyncio.Event()

    async def small() -> None:
        async with sqlite_db.write() as tx:
            tx.add(Mark(name="small", value="", at=START))
            await tx.flush()
            await queued.wait()

    async def too_big() -> None:
        async with sqlite_db.write() as tx:
            tx.add(Mark(name="too big", value="x" * 1_000_000, at=START))

    waiting = [asyncio.create_task(small()), asyncio.create_task(too_big())]
    for _ in range(20):
        await asyncio.sleep(0)
    queued.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[1], DBAPIError)
    async with sqlite_db.read() as tx:
        stored = set(await tx.scalars(select(Mark.name)))
    assert stored == ({"small"} if outcomes[0] is None else set())
    async with sqlite_db.write() as tx:
        tx.add(Mark(name="after", value="", at=START))


async def test_a_transaction_of_a_process_that_stands_still_is_ended_by_postgresql(pg_db: Database) -> None:
    async with pg_db.read() as tx:
        assert await tx.scalar(text("SELECT current_setting('idle_in_transaction_session_timeout')")) == "10s"
