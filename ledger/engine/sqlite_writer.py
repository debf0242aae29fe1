"""Run the transactions of one SQLite ledger one after another and let them share a flush to disk.

SQLite has one write lock, and a durable COMMIT waits for the disk: that wait, not the work, bounds how many
transactions a second a process can do. So a block that ends while others wait does not commit by itself. The next one
runs in the same SQLite transaction, inside a SAVEPOINT of its own, and one COMMIT ends them all. No `write()` returns
before that commit, so what was acknowledged is on disk; a block that fails undoes only itself. The first one of a group
needs no SAVEPOINT: nothing is before it that its failure could undo.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

#: Most transactions that share one commit: bounds how long the first of them waits for the others.
GROUP_MAX = 8
URGENT, ORDINARY = 0, 1


@asynccontextmanager
async def closing_in_place(session: AsyncSession) -> AsyncIterator[AsyncSession]:
    """Close a session of SQLite at the end of the block.

    Its own context manager closes it in a task of its own, because a cancelled task must not stop while a server is
    awaited. Nothing is awaited here: undoing a transaction and giving its connection back are done in place.
    """
    try:
        yield session
    finally:
        await session.close()


@dataclass(slots=True)
class _Group:
    """Hold one SQLite transaction and the blocks in it that wait for its commit."""

    connection: AsyncConnection
    committed: asyncio.Future[None]
    size: int = 0


@dataclass(slots=True)
class SharedWriter:
    """Serve waiting writers by urgency, then in order of arrival. One per database file and process."""

    engine: AsyncEngine
    _group: _Group | None = None
    _held: bool = False
    _order: count[int] = field(default_factory=count)
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(default_factory=list)
    _closers: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def transaction(self, *, urgent: bool) -> AsyncIterator[AsyncSession]:
        """Open a session inside the shared transaction. Left normally, it returns when its work is committed.

        Raises what the block raises, with only its own work undone, or what the shared commit raised.
        """
        await self._acquire(URGENT if urgent else ORDINARY)
        try:
            group = await self._open()
            session = AsyncSession(
                group.connection,
                join_transaction_mode="create_savepoint" if group.size else "rollback_only",
                expire_on_commit=False,
                info={"writes": True},
            )
            async with closing_in_place(session), session.begin():
                yield session
            group.size += 1
        except BaseException:
            await self._leave(self._group, alone=True)
            raise
        # An acknowledgement waits for an urgent block, so nothing else may join it.
        await self._leave(group, alone=urgent)
        await asyncio.shield(group.committed)

    async def _open(self) -> _Group:
        if self._group is None:
            connection = await self.engine.connect()
            try:
                await connection.begin()
            except BaseException:
                await connection.close()
                raise
            committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # A failure must not be reported as forgotten when no member of the group is left to receive it.
            committed.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._group = _Group(connection, committed)
        return self._group

    async def _leave(self, group: _Group | None, *, alone: bool) -> None:
        """Hand the lock on inside the group, or commit the group and hand the lock on after it."""
        if group is not None and self._someone_waits() and group.size < GROUP_MAX and not alone:
            self._release()
            return
        closing = asyncio.create_task(self._close_group(), name="ledger-commit")
        self._closers.add(closing)
        closing.add_done_callback(self._closers.discard)
        await asyncio.shield(closing)

    async def _close_group(self) -> None:
        """Commit the open group, wake everyone who waits for it, and hand the lock on."""
        group, self._group = self._group, None
        try:
            if group is not None:
                try:
                    await group.connection.commit()
                except BaseException:
                    # Nobody knows what state the connection is in, so it is thrown away with its transaction.
                    await group.connection.invalidate()
                    raise
                finally:
                    await group.connection.close()
                group.committed.set_result(None)
        except Exception as error:  # noqa: BLE001 # Every member of the group must learn that nothing was stored.
            if group is not None:
                group.committed.set_exception(error)
        finally:
            self._release()

    def _someone_waits(self) -> bool:
        return any(not turn.done() for _, _, turn in self._waiting)

    async def _acquire(self, rank: int) -> None:
        if not self._held:
            self._held = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The turn had been handed over; the members of the group still wait for its commit.
                await self._leave(self._group, alone=False)
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._held = False
