"""One order of locks: transactions that touch the same family wait for each other, and never for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ledger.core.locks import (
    lock_auto_approval,
    lock_budgets,
    lock_families,
    lock_family,
    lock_journal,
    lock_orphan,
    lock_requester,
    lock_rollup,
)
from ledger.core.moves import StaleMove, move
from ledger.core.writes import Tx, amend
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import GrantRow, Instance, Orphan, Request, Session
from ledger.queries.decisions import subject_of_request
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits


async def test_the_sender_and_an_end_do_not_deadlock(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        session = await rows.session(tx, SessionState.QUEUED)
        instance = await rows.instance(tx, InstanceState.READY, of=session)

    async def end() -> None:
        async with pg_db.write() as tx:
            await move(tx, Session, session.id, SessionState.TERMINATING, at=START, actor=SYSTEM)
            await move(tx, Instance, instance.id, InstanceState.REJECTED, at=START, actor=SYSTEM)

    async with pg_db.write() as tx:
        await move(tx, Instance, instance.id, InstanceState.SENDING, at=START, actor=SYSTEM)
        ending = asyncio.create_task(end())
        await somebody_waits(pg_db, ending)
        await move(tx, Session, session.id, SessionState.PROVISIONING, at=START, actor=SYSTEM)
    await ending  # It saw the row as SENDING, from where a definite no is legal.
    async with pg_db.read() as tx:
        assert (await tx.get_one(Session, session.id)).state is SessionState.TERMINATING


async def test_a_parent_and_its_override_do_not_deadlock(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        parent = await rows.request(tx, RequestState.PENDING)
        override = await rows.request(tx, RequestState.PENDING, kind=RequestKind.OVERRIDE_12H, parent_id=parent.id)

    async def refuse_override() -> None:
        async with pg_db.write() as tx:
            await subject_of_request(tx, override.id)
            await move(tx, Request, override.id, RequestState.REJECTED, at=START, actor=SYSTEM)
            await move(tx, Request, parent.id, RequestState.REJECTED, at=START, actor=SYSTEM)

    async with pg_db.write() as tx:
        await move(tx, Request, parent.id, RequestState.CANCELLED, at=START, actor=SYSTEM)
        refusing = asyncio.create_task(refuse_override())
        await somebody_waits(pg_db, refusing)
        await move(tx, Request, override.id, RequestState.CANCELLED, at=START, actor=SYSTEM)
    lost = (await asyncio.gather(refusing, return_exceptions=True))[0]
    assert isinstance(lost, StaleMove)


async def test_every_kind_of_row_leads_to_the_same_lock(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        instance = await rows.instance(tx)
        session = await tx.get_one(Session, instance.session_id)
        grant = await tx.get_one(GrantRow, instance.grant_id)
        request = await tx.get_one(Request, instance.request_id)
    for model, row_id in ((Instance, instance.id), (Session, session.id), (GrantRow, grant.id), (Request, request.id)):

        async def touch(of: type = model, one: str = row_id) -> None:
            async with pg_db.write() as tx:
                await lock_family(tx, of, one)

        async with pg_db.write() as tx:
            await lock_family(tx, Request, request.id)
            touching = asyncio.create_task(touch())
            await somebody_waits(pg_db, touching)
            assert not touching.done()
        await touching


async def test_amending_takes_the_same_lock(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        instance = await rows.instance(tx)

    async def amend_it() -> None:
        async with pg_db.write() as tx:
            await amend(tx, Instance, instance.id, status="booting")

    async with pg_db.write() as tx:
        await lock_family(tx, Request, instance.request_id)
        amending = asyncio.create_task(amend_it())
        await somebody_waits(pg_db, amending)
        assert not amending.done()
    await amending


async def test_rows_may_be_added_to_a_locked_family(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
    async with pg_db.write() as tx:
        await lock_family(tx, Request, request.id)
        async with asyncio.timeout(5):
            await asyncio.create_task(_approve(pg_db, request))


async def _approve(db: Database, request: Request) -> None:
    async with db.write() as tx:
        await rows.approval(tx, request)


async def test_other_rows_and_sqlite_need_no_lock(db: Database) -> None:
    async with db.write() as tx:
        stray = await rows.stray(tx)
        await lock_family(tx, Orphan, stray.id)
        await lock_family(tx, Request, "req_none")
    async with db.read() as tx:
        await lock_family(tx, Request, "req_none")


async def test_each_lock_keeps_out_its_own_kind_and_a_read_takes_none(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        row, other = await rows.instance(tx), await rows.instance(tx)
        stray = await rows.stray(tx)
    locks: list[Callable[[Tx], Awaitable[None]]] = [
        lambda tx: lock_families(tx, [row.id]),
        lambda tx: lock_families(tx, [other.id]),
        lambda tx: lock_orphan(tx, stray.id),
        lambda tx: lock_requester(tx, rows.ADA.ref),
        lambda tx: lock_requester(tx, rows.BEN.ref),
        lock_budgets,
        lock_journal,
        lock_rollup,
        lock_auto_approval,
    ]

    async def take(some: list[Callable[[Tx], Awaitable[None]]]) -> None:
        async with pg_db.write() as tx:
            for lock in some:
                await lock(tx)

    for lock in locks:
        async with pg_db.read() as reading:
            await lock(reading)
            async with pg_db.write() as tx:
                await lock(tx)
                async with asyncio.timeout(5):
                    await asyncio.create_task(take([one for one in locks if one is not lock]))
                taking = asyncio.create_task(take([lock]))
                await somebody_waits(pg_db, taking)
                assert not taking.done()
            await taking
