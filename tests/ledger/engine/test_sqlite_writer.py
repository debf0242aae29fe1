"""Writers of one SQLite file share commits: fewer flushes, the same promises to each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import IntegrityError

from ledger.engine.db import Database
from ledger.engine.sqlite_writer import GROUP_MAX
from ledger.models import Mark, Token
from tests.support.clock import START


@pytest.fixture
async def other(sqlite_db_url: str, sqlite_db: Database) -> AsyncIterator[Database]:
    """The same file, as another process sees it: only what is committed."""
    database = Database(sqlite_db_url)
    yield database
    await database.close()


async def names(db: Database) -> set[str]:
    async with db.read() as tx:
        return set(await tx.scalars(select(Mark.name)))


async def add(db: Database, name: str, *, fail: bool = False) -> None:
    async with db.write() as tx:
        tx.add(Mark(name=name, value="", at=START))
        await tx.flush()
        if fail:
            raise OSError(name)


async def together(db: Database, *works: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    """Start works that all wait behind one write, so that they share the commits after it; then let that one go on.

    The one in front shares a commit with them, so it is nobody that a test waits for.
    """
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def in_front() -> None:
        async with db.write():
            entered.set()
            await go_on.wait()

    front = asyncio.create_task(in_front())
    front.add_done_callback(lambda done: done.exception())
    await entered.wait()
    tasks = [asyncio.create_task(work) for work in works]
    for _ in range(5):
        await asyncio.sleep(0)
    go_on.set()
    return tasks


async def test_who_waits_shares_a_commit_and_is_stored_before_it_returns(sqlite_db: Database, other: Database) -> None:
    commits: list[object] = []
    event.listen(sqlite_db.writer.sync_engine, "commit", commits.append)

    async def add_and_look(name: str) -> None:
        await add(sqlite_db, name)
        assert name in await names(other)

    await asyncio.gather(*await together(sqlite_db, *(add_and_look(f"m{n}") for n in range(2 * GROUP_MAX))))
    assert await names(other) == {f"m{n}" for n in range(2 * GROUP_MAX)}
    assert len(commits) <= 4


async def test_a_block_that_fails_undoes_only_itself(sqlite_db: Database, other: Database) -> None:
    tasks = await together(sqlite_db, *(add(sqlite_db, f"m{n}", fail=n in (2, 5)) for n in range(8)))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, OSError)] == [2, 5]
    assert await names(other) == {f"m{n}" for n in range(8) if n not in (2, 5)}


async def test_a_commit_that_fails_is_heard_by_everybody_in_it(sqlite_db: Database, other: Database) -> None:
    async def break_the_commit() -> None:
        async with sqlite_db.write() as tx:
            await tx.execute(text("PRAGMA defer_foreign_keys=ON"))
            tx.add(Token(token="t", request_id="req_none", quote_version=1, action="approve"))

    tasks = await together(sqlite_db, add(sqlite_db, "before"), break_the_commit(), add(sqlite_db, "after"))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    stored = await names(other)
    assert isinstance(outcomes[1], IntegrityError)
    for name, outcome in (("before", outcomes[0]), ("after", outcomes[2])):
        assert (outcome is None) == (name in stored)
    await add(sqlite_db, "later")
    assert "later" in await names(other)


async def test_a_cancelled_block_takes_nobody_with_it(sqlite_db: Database, other: Database) -> None:
    inside = asyncio.Event()

    async def stuck() -> None:
        async with sqlite_db.write() as tx:
            tx.add(Mark(name="stuck", value="", at=START))
            await tx.flush()
            inside.set()
            await asyncio.Event().wait()

    first, second, third = await together(sqlite_db, add(sqlite_db, "first"), stuck(), add(sqlite_db, "third"))
    await inside.wait()
    second.cancel()
    await asyncio.gather(first, third)
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await names(other) == {"first", "third"}


async def test_waiters_cancelled_at_any_moment_block_nobody(sqlite_db: Database, other: Database) -> None:
    """Groups of three, one cancelled at every turn of the loop in turn: the others are stored, the writer goes on."""
    for turn in range(25):
        tasks = [asyncio.create_task(add(sqlite_db, f"{turn:02}-{n}")) for n in range(3)]
        for _ in range(turn):
            await asyncio.sleep(0)
        tasks[turn % 3].cancel()
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        stored = await names(other)
        for n, outcome in enumerate(outcomes):
            assert (outcome is None) <= (f"{turn:02}-{n}" in stored)
            assert outcome is None or n == turn % 3
    await add(sqlite_db, "last")
    assert "last" in await names(other)
