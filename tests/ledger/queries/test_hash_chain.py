"""The hash chain of the journal."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState
from ledger.models import Event, EventHash
from ledger.queries.hash_chain import MARGIN, family, hashed_events, heads, last_hashed_at, unsealed
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

SECOND = timedelta(seconds=1)


def link(of: Event, number: int) -> EventHash:
    return EventHash(event_id=of.id, subject=of.subject, number=number, hash=f"{number:064}", at=of.at)


async def test_events_without_a_hash_in_order(db: Database) -> None:
    async with db.write() as tx:
        assert await last_hashed_at(tx) is None
        at = [START - MARGIN - SECOND, START - MARGIN, START - SECOND, START, START + SECOND]
        late, due, early, newest, last = [
            await rows.event(tx, EventKind.REQUEST_MADE, f"req_{n % 2}", at=moment) for n, moment in enumerate(at)
        ]
        everything = [one.id for one in await unsealed(tx, START + 2 * SECOND, 9)]
        assert everything == [late.id, due.id, early.id, newest.id, last.id]
        assert [one.id for one in await unsealed(tx, START + SECOND, 3)] == everything[:3]
        tx.add_all([link(early, 1), link(newest, 1)])
    async with db.write() as tx:
        assert await last_hashed_at(tx) == START
        # An event that was committed much later than it happened is not looked for.
        assert [one.id for one in await unsealed(tx, START + 2 * SECOND, 9)] == [due.id, last.id]
        assert [one.id for one in await unsealed(tx, START + SECOND, 9)] == [due.id]
        tx.add(link(last, 2))
    async with db.read() as tx:
        assert {name: (one.number, one.event_id) for name, one in (await heads(tx, ["req_0", "req_2"])).items()} == {
            "req_0": (2, last.id)
        }
        assert {*await heads(tx, ["req_0", "req_1"])} == {"req_0", "req_1"}
        assert [(one.id, of and of.number) for one, of in await hashed_events(tx, ["req_0", "req_2"])] == [
            (late.id, None),
            (early.id, 1),
            (last.id, 2),
        ]


async def test_events_of_one_instant_are_in_the_order_of_their_ids(db: Database) -> None:
    ids = [new_id("evt", START) for _ in range(3)]
    async with db.write() as tx:
        for event_id in reversed(ids):
            await rows.event(tx, EventKind.REQUEST_MADE, "req_0", id=event_id)
    async with db.write() as tx:
        assert [one.id for one in await unsealed(tx, START + SECOND, 9)] == ids
        assert [one.id for one, _ in await hashed_events(tx, ["req_0"])] == ids


async def test_one_process_at_a_time_adds_hashes(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        event = await rows.event(tx, EventKind.REQUEST_MADE, "req_0")

    async def seal(tx: Tx) -> list[str]:
        found = await unsealed(tx, START + SECOND, 9)
        tx.add_all([link(one, 1) for one in found])
        return [one.id for one in found]

    async def other() -> list[str]:
        async with pg_db.write() as tx:
            return await seal(tx)

    async with pg_db.write() as tx:
        assert await seal(tx) == [event.id]
        sealing = asyncio.create_task(other())
        await somebody_waits(pg_db, sealing)
    assert await sealing == []


async def test_the_subjects_of_a_request(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE)
        more = await rows.request(tx, kind=RequestKind.EXTEND, parent_id=row.request_id)
        extension = await rows.grant(tx, more)
        await rows.instance(tx)
    async with db.read() as tx:
        assert sorted(await family(tx, row.request_id)) == sorted(
            [row.request_id, more.id, row.session_id, row.id, row.grant_id, extension.id]
        )
        assert await family(tx, "req_none") == []
