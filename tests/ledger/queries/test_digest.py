"""What a digest reports beside money."""

from __future__ import annotations

from dataclasses import astuple
from datetime import timedelta
from decimal import Decimal

from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, SessionState
from ledger.queries.digest import (
    any_before,
    gone_at,
    mark_of,
    open_sessions,
    orphans_found,
    over,
    said_of,
    set_mark,
    stops,
)
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
UNTIL = START + HOUR


async def test_sessions_that_have_not_ended_the_first_to_end_first(db: Database) -> None:
    async with db.read() as tx:
        assert not await any_before(tx, UNTIL)
    async with db.write() as tx:
        queued = await rows.session(tx, SessionState.QUEUED, gpu_count=2)
        late = await rows.session(tx, SessionState.RUNNING, deadline=START + 9 * HOUR, owner=rows.BEN.ref)
        await rows.instance(tx, InstanceState.GONE, of=late, price_usd_h=Decimal(9))
        soon = await rows.session(tx, SessionState.STOPPED)
        await rows.instance(tx, InstanceState.STOPPED, of=soon, storage_usd_h=Decimal("0.02"))
        await rows.session(tx, SessionState.TERMINATED)
        await rows.session(tx, SessionState.FAILED)
    async with db.read() as tx:
        nothing, gpu = Decimal(0), "RTX 4090"
        assert [astuple(one) for one in await open_sessions(tx)] == [
            (
                soon.id,
                rows.ADA.ref,
                gpu,
                1,
                soon.state,
                soon.deadline,
                "vast",
                Decimal("0.40"),
                Decimal("0.02"),
                soon.request_id,
            ),
            (late.id, rows.BEN.ref, gpu, 1, late.state, late.deadline, "", nothing, nothing, late.request_id),
            (queued.id, rows.ADA.ref, gpu, 2, queued.state, None, "", nothing, nothing, queued.request_id),
        ]
        assert await any_before(tx, START + SECOND)
        assert not await any_before(tx, START)


async def test_sessions_that_ended_with_their_reason_and_highest_price(db: Database) -> None:
    async with db.write() as tx:
        one = await rows.session(tx, SessionState.TERMINATED, ended_at=START, end_code="asked")
        other = await rows.session(tx, SessionState.TERMINATED, ended_at=UNTIL - SECOND, end_code="idle")
        free = await rows.session(tx, SessionState.FAILED, ended_at=START, end_code="no_offer")
        for ended_at in (START - SECOND, UNTIL, None):
            await rows.session(tx, SessionState.TERMINATED, ended_at=ended_at)
        first = await rows.instance(tx, InstanceState.GONE, of=one, price_usd_h=Decimal("0.7"))
        await rows.replacement(tx, first, InstanceState.REJECTED, price_usd_h=Decimal("0.3"))
        await rows.instance(tx, InstanceState.GONE, of=other)
    async with db.read() as tx:
        found = {ended.id: (ended.code, ended.ended_at, ended.price_usd_h) for ended in await over(tx, START, UNTIL)}
    assert found == {
        one.id: ("asked", START, Decimal("0.7")),
        other.id: ("idle", UNTIL - SECOND, Decimal("0.4")),
        free.id: ("no_offer", START, 0),
    }


async def test_when_sessions_stood_still(db: Database) -> None:
    moves = (
        ("running", "stopped", 3),
        ("stopped", "running", 5),
        ("running", "stopped", 6),
        ("stopped", "terminating", 9),
    )
    async with db.write() as tx:
        for before, after, minute in (*moves, ("provisioning", "running", 1)):
            at = START + timedelta(minutes=minute)
            await rows.event(tx, EventKind.SESSION_MOVED, "ses_1", at=at, before=before, after=after)
        await rows.event(tx, EventKind.SESSION_MOVED, "ses_2", at=START + 2 * HOUR, before="running", after="stopped")
        await rows.event(tx, EventKind.INSTANCE_MOVED, "ses_3", before="live", after="stopped")
    # More names than one query takes.
    names = [*(f"ses_no{n}" for n in range(500)), "ses_1", "ses_2", "ses_3"]
    async with db.read() as tx:
        assert await stops(tx, names, START + timedelta(minutes=9)) == {
            "ses_1": [(START + timedelta(minutes=minute), after == "stopped") for _, after, minute in moves[:3]]
        }
        assert [(name, len(found)) for name, found in (await stops(tx, names, START + 3 * HOUR)).items()] == [
            ("ses_1", 4),
            ("ses_2", 1),
        ]
        assert await stops(tx, [], UNTIL) == {}


async def test_orphans_sentences_and_instances_of_one_time(db: Database) -> None:
    times = (UNTIL - SECOND, START - SECOND, START, UNTIL)
    async with db.write() as tx:
        orphans = [await rows.stray(tx, at=at) for at in times]
        for at in times:
            await rows.event(tx, EventKind.SPEND_OVER, "ses_1", at=at, reason=f"{at:%H:%M:%S}")
            await rows.event(tx, EventKind.SPEND_PAUSED, "ses_1", at=at, reason="another kind")
        gone = [
            await rows.instance(tx, InstanceState.GONE, ended_at=at, price_usd_h=Decimal(n))
            for n, at in enumerate((UNTIL - SECOND, START, START - SECOND, UNTIL))
        ]
        other = await rows.instance(tx, InstanceState.GONE, ended_at=START, cloud="kaggle", price_usd_h=Decimal(0))
    async with db.read() as tx:
        assert [one.id for one in await orphans_found(tx, START, UNTIL)] == [orphans[2].id, orphans[0].id]
        assert await said_of(tx, EventKind.SPEND_OVER, START, UNTIL) == ["09:00:00", "09:59:59"]
        assert [row.id for row in await gone_at(tx, ["vast"], START, UNTIL)] == [gone[1].id, gone[0].id]
        assert [row.id for row in await gone_at(tx, ["kaggle", "lambda"], START, UNTIL)] == [other.id]
        assert await gone_at(tx, [], START, UNTIL) == []


async def test_a_mark_is_empty_until_it_is_set_and_may_be_set_again(db: Database) -> None:
    for value in ("2026-03", "2026-04"):
        async with db.write() as tx:
            await set_mark(tx, "reservations", value, START)
        async with db.read() as tx:
            assert await mark_of(tx, "reservations") == value
            assert not await mark_of(tx, "other")
