"""The hash chain of the journal."""

from __future__ import annotations

from datetime import timedelta

from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState
from ledger.models import Event, EventHash
from ledger.queries.event_order import number_events
from ledger.queries.hash_chain import family, heads, journal_of, last_hashed_position, unhashed_events
from tests.support import rows
from tests.support.clock import START

SECOND = timedelta(seconds=1)
MADE = EventKind.REQUEST_MADE


def link(of: Event, number: int) -> EventHash:
    return EventHash(event_id=of.id, subject=of.subject, number=number, hash=f"{number:064}", at=of.at)


async def test_events_without_a_hash_in_order(db: Database) -> None:
    async with db.write() as tx:
        assert await last_hashed_position(tx) == 0
        first, second = [await rows.event(tx, MADE, f"req_{n}", at=START + n * SECOND) for n in range(2)]
    async with db.write() as tx:
        assert await unhashed_events(tx, 9) == []  # Nothing has a position yet.
        await number_events(tx, START)
        assert [one.id for one in await unhashed_events(tx, 9)] == [first.id, second.id]
        assert [one.id for one in await unhashed_events(tx, 1)] == [first.id]
        tx.add_all([link(first, 1), link(second, 1)])
        # A commit may be late by any time, and a clock may have been wrong.
        old = await rows.event(tx, MADE, "req_0", at=START - timedelta(days=1))
        early = await rows.event(tx, MADE, "req_1", at=START - timedelta(hours=2))
    async with db.write() as tx:
        await number_events(tx, START)
        assert await last_hashed_position(tx) == 2
        assert [one.id for one in await unhashed_events(tx, 9)] == [old.id, early.id]
        tx.add(link(old, 2))
        new = await rows.event(tx, MADE, "req_0", at=START - timedelta(days=2))
    async with db.read() as tx:
        assert {name: (one.number, one.event_id) for name, one in (await heads(tx, ["req_0", "req_2"])).items()} == {
            "req_0": (2, old.id)
        }
        assert {*await heads(tx, ["req_0", "req_1"])} == {"req_0", "req_1"}
        shown = await journal_of(tx, ["req_0", "req_2"])
    assert [(one.event.id, one.link and one.link.number, one.position, one.waiting) for one in shown] == [
        (first.id, 1, 1, False),
        (old.id, 2, 3, False),
        (new.id, None, None, True),
    ]
    assert [one.numbered_at for one in shown] == [START, START, None]


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
