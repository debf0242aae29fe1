"""The one order of the journal: numbered after the commit, without gaps, by any replica."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.queries import event_order
from ledger.queries.access import Whose
from ledger.queries.event_order import (
    OrderState,
    events_after,
    newest_position,
    number_events,
    only,
    order_state,
    position_of,
)
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

SECOND = timedelta(seconds=1)
MADE = EventKind.REQUEST_MADE


async def numbered(db: Database) -> list[tuple[int, str]]:
    async with db.read() as tx:
        newest = await newest_position(tx)
        reached, found = await events_after(tx, 0, 999)
        positions = [await position_of(tx, event.id) for event in found]
    assert reached == newest
    return [(position or 0, event.id) for position, event in zip(positions, found, strict=True)]


async def test_events_are_numbered_in_the_order_of_their_times_and_late_ones_behind(db: Database) -> None:
    async with db.read() as tx:
        assert await order_state(tx) == OrderState(0, waiting=False)
    async with db.write() as tx:
        later, early = [await rows.event(tx, MADE, "req_0", at=START + n * SECOND) for n in (1, 0)]
    async with db.read() as tx:
        assert await order_state(tx) == OrderState(0, waiting=True)
    async with db.write() as tx:
        assert await number_events(tx, START) == OrderState(2, waiting=False)
    async with db.write() as tx:
        late = await rows.event(tx, MADE, "req_0", at=START - 90 * SECOND)
    async with db.write() as tx:
        assert (await number_events(tx, START)).newest == 3
        assert (await number_events(tx, START)).newest == 3
    assert await numbered(db) == [(1, early.id), (2, later.id), (3, late.id)]
    async with db.read() as tx:
        assert await order_state(tx) == OrderState(3, waiting=False)


async def test_a_rolled_back_pass_leaves_no_gap_and_a_full_one_says_that_there_is_more(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with db.write() as tx:
        ids = [(await rows.event(tx, MADE, "req_0")).id for _ in range(5)]
    monkeypatch.setattr(event_order, "BATCH", 2)

    async def fail() -> None:
        async with db.write() as tx:
            await number_events(tx, START)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    for state in (OrderState(2, waiting=True), OrderState(4, waiting=True), OrderState(5, waiting=False)):
        async with db.write() as tx:
            assert await number_events(tx, START) == state
    assert await numbered(db) == list(enumerate(ids, 1))


async def test_one_process_at_a_time_numbers(pg_db: Database) -> None:
    async with pg_db.write() as tx:
        first = await rows.event(tx, MADE, "req_0")

    async def other() -> OrderState:
        async with pg_db.write() as tx:
            return await number_events(tx, START)

    async with pg_db.write() as tx:
        await number_events(tx, START)
        numbering = asyncio.create_task(other())
        await somebody_waits(pg_db, numbering)
        async with asyncio.timeout(5):  # Writing an event waits for nobody who numbers.
            second = await asyncio.create_task(_write(pg_db))
    assert await numbering == OrderState(2, waiting=False)
    assert await numbered(pg_db) == [(1, first.id), (2, second)]


async def _write(db: Database) -> str:
    async with db.write() as tx:
        return (await rows.event(tx, MADE, "req_0")).id


async def test_replicas_that_number_at_once_leave_no_gap_and_give_no_event_two_numbers(db: Database) -> None:
    replicas = [db, Database(db.url.render_as_string(hide_password=False))]

    async def number(one: Database, times: int) -> None:
        for _ in range(times):
            async with one.write() as tx:
                await number_events(tx, START)

    async def write(one: Database) -> list[str]:
        return [await _write(one) for _ in range(15)]

    *_, mine, others = await asyncio.gather(*(number(one, 15) for one in replicas), *(write(one) for one in replicas))
    await number(db, 1)
    found = await numbered(db)
    assert [position for position, _ in found] == list(range(1, 31))
    assert sorted(event_id for _, event_id in found) == sorted([*(mine or ()), *(others or ())])
    await replicas[1].close()


async def test_the_stream_shows_a_person_what_is_theirs(db: Database) -> None:
    async with db.write() as tx:
        mine, other = (
            await rows.instance(tx),
            await rows.instance(tx, of=await rows.session(tx, of=await rows.request(tx, requester=rows.BEN.ref))),
        )
        # A session that was handed over is its owner's, its request the requester's.
        given = await rows.session(tx, of=await rows.request(tx, requester=rows.BEN.ref), owner=rows.ADA.ref)
        backed, foreign, lone = [await rows.stray(tx, of=of) for of in (mine, other, None)]
        told = [
            await rows.event(tx, kind, subject)
            for kind, subject in (
                (MADE, mine.request_id),
                (EventKind.SESSION_MOVED, mine.session_id),
                (EventKind.SESSION_MOVED, given.id),
                (EventKind.INSTANCE_MOVED, mine.id),
                (EventKind.ORPHAN_SEEN, backed.id),
                (EventKind.BUDGET_THRESHOLD, "user:UADA"),
                (EventKind.BUDGET_THRESHOLD, f"user:{rows.ADA.ref}"),
                (EventKind.BUDGET_THRESHOLD, rows.ADA.ref),
            )
        ]
        hidden = [
            await rows.event(tx, kind, subject)
            for kind, subject in (
                (MADE, other.request_id),
                (MADE, given.request_id),
                (EventKind.SESSION_MOVED, other.session_id),
                (EventKind.INSTANCE_MOVED, other.id),
                (EventKind.ORPHAN_SEEN, foreign.id),
                (EventKind.ORPHAN_SEEN, lone.id),
                (EventKind.BUDGET_THRESHOLD, "user:UBEN"),
                (EventKind.BUDGET_SET, "user:UADA"),
            )
        ]
    ids, every = [one.id for one in told], [one.id for one in (*told, *hidden)]
    async with db.write() as tx:
        newest = (await number_events(tx, START)).newest

    async def between(tx: Tx, after: int, scanned: int, whose: Whose | None) -> list[str]:
        return [event.id for event in (await events_after(tx, after, scanned, *only(whose)))[1]]

    async with db.read() as tx:
        whose, first = Whose.of([rows.ADA]), await position_of(tx, ids[1])
        assert first is not None
        assert await between(tx, 0, 99, whose) == ids
        assert await between(tx, first, 3, whose) == ids[2:5]
        assert await between(tx, 0, 99, None) == every
        assert await between(tx, newest - 1, 99, None) == every[-1:]
        # A program's budget is not a person's of that name.
        assert await between(tx, 0, 99, Whose.of([Actor(ActorKind.OPERATOR, "UADA")])) == []
        reached, made = await events_after(tx, 0, newest - 1, *only(whose, [MADE]))
        assert (reached, [event.id for event in made]) == (newest - 1, [ids[0]])
        assert await events_after(tx, 0, 99, *only(None, [])) == (newest, [])
        assert await events_after(tx, newest, 99) == (newest, [])
        assert await position_of(tx, "evt_none") is None
