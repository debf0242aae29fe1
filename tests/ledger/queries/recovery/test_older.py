"""What recovery mode waits for, and what was approved before an older ledger was noticed."""

from __future__ import annotations

from datetime import timedelta

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, OrphanState
from ledger.queries.recovery.older import (
    Accepted,
    Recovery,
    accepted,
    advances_before,
    first_request_at,
    launches_approved_before,
    missing_machines,
    note_accepted,
    note_older,
    older_mark,
    recovery,
    restored_at,
    rows_of,
)
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)


async def test_an_older_ledger_is_on_until_it_is_accepted(db: Database) -> None:
    async with db.read() as tx:
        assert (await recovery(tx), await restored_at(tx), await accepted(tx)) == (Recovery(), None, None)
    async with db.write() as tx:
        await note_older(tx, "first", START)
        await note_older(tx, "second", START + MINUTE)
        orphan = await rows.stray(tx, OrphanState.QUARANTINED, at=START + MINUTE)
    async with db.read() as tx:
        waits = await recovery(tx)
        assert waits == Recovery(1, orphan.first_seen_at, START)
        assert (bool(waits), waits.since, await restored_at(tx)) == (True, START, START)
        mark = await older_mark(tx)
        assert mark is not None
        assert (mark.value, mark.at) == ("second", START)
    async with db.write() as tx:
        assert await note_accepted(tx, START, START + 2 * MINUTE, {"one of two": START, "two": START - MINUTE})
        assert not await note_accepted(tx, START, START + 3 * MINUTE, {})
    async with db.read() as tx:
        assert await accepted(tx) == Accepted(START + 2 * MINUTE, START, {"one of two": START, "two": START - MINUTE})
        assert (await restored_at(tx), await older_mark(tx)) == (START, None)
        assert await recovery(tx) == Recovery(1, orphan.first_seen_at)


async def test_what_is_not_sent_yet_counts_by_its_approval(db: Database) -> None:
    async with db.write() as tx:
        assert await first_request_at(tx) is None
        ready = await rows.instance(tx, InstanceState.READY)
    async with db.read() as tx:
        assert ready.state is InstanceState.READY
        assert await first_request_at(tx) is not None
        later = START + timedelta(days=365)
        assert [one.session_id for one in await launches_approved_before(tx, later)] == [ready.session_id]
        assert await launches_approved_before(tx, START - MINUTE) == []
        assert await advances_before(tx, later) == []
        assert await missing_machines(tx, later, ["nowhere"]) == []
        assert await missing_machines(tx, later, [ready.cloud]) == [ready.session_id]
        instances, sessions = await rows_of(tx, [ready.id, "ins_none"])
        assert (list(instances), list(sessions)) == ([ready.id], [ready.session_id])
