"""The journal."""

from __future__ import annotations

from datetime import timedelta

from ledger.core.events import record
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.queries.journal import (
    done_before,
    latest_events,
    moves_of,
    noted_before,
    quote_failures,
    reasons_of,
    subjects_with,
)
from tests.support import rows
from tests.support.clock import START

SECOND = timedelta(seconds=1)
MADE, MOVED, UNQUOTED = EventKind.REQUEST_MADE, EventKind.REQUEST_MOVED, EventKind.REQUEST_UNQUOTED


async def test_the_journal_keeps_the_order_in_which_things_happened(db: Database) -> None:
    async with db.write() as tx:
        for n in range(50):
            record(tx, at=START, actor=SYSTEM, subject=f"s{n % 2}", kind=EventKind.REQUEST_MADE, reason=str(n))
    async with db.read() as tx:
        assert await reasons_of(tx, "s0", [EventKind.REQUEST_MADE]) == [str(n) for n in range(0, 50, 2)]
        assert [one.reason for one in await latest_events(tx, "s1", EventKind.REQUEST_MADE, 2)] == ["49", "47"]
        assert await subjects_with(tx, MADE, ["s0", "none"]) == {"s0"}


async def test_the_moves_of_a_session_and_its_instances_are_in_order_and_nothing_else_is_with_them(
    db: Database,
) -> None:
    async with db.write() as tx:
        for n, (subject, kind) in enumerate(
            (("ses", EventKind.SESSION_MOVED), ("ins", EventKind.INSTANCE_STOP), ("other", EventKind.SESSION_MOVED))
        ):
            record(tx, at=START + n * SECOND, actor=SYSTEM, subject=subject, kind=kind, after="running")
        record(tx, at=START - SECOND, actor=SYSTEM, subject="ins", kind=EventKind.INSTANCE_MOVED, after="live")
    async with db.read() as tx:
        found = [(one.subject, one.after, one.at) for one in await moves_of(tx, ["ses", "ins"])]
    assert found == [("ins", "live", START - SECOND), ("ses", "running", START)]


async def test_what_a_call_has_done_already(db: Database) -> None:
    async with db.write() as tx:
        row, other = await rows.instance(tx), await rows.instance(tx)
        for subject, kind, key in (
            (row.session_id, EventKind.SESSION_MOVED, "end"),
            (row.id, EventKind.INSTANCE_STOP, "stop"),
            (other.id, EventKind.INSTANCE_STOP, "other"),
        ):
            record(tx, at=START, actor=SYSTEM, subject=subject, kind=kind, key=key, reason=key)
    before, kinds = START - SECOND, [EventKind.SESSION_MOVED, EventKind.INSTANCE_STOP]
    async with db.read() as tx:
        for key in ("end", "stop"):
            found = await done_before(tx, row.session_id, kinds, key, before)
            assert found is not None
            assert found.reason == key
        assert await done_before(tx, row.session_id, [EventKind.INSTANCE_STOP], "end", before) is None
        assert await done_before(tx, row.session_id, kinds, "other", before) is None
        assert await done_before(tx, row.session_id, kinds, "end", START) is None
        assert await done_before(tx, row.session_id, kinds, "", before) is None
        assert await noted_before(tx, [row.session_id], "", before) is None
        noted = await noted_before(tx, [row.session_id], "end", before)
        assert noted is not None
        assert (noted.kind, noted.data) == (EventKind.SESSION_MOVED, {"key": "end"})


async def test_failures_since_the_last_success_are_counted(db: Database) -> None:
    async with db.write() as tx:
        for n, kind in enumerate((MADE, UNQUOTED, UNQUOTED, MOVED, UNQUOTED, UNQUOTED, UNQUOTED)):
            await rows.event(tx, kind, "req_1", at=START + n * SECOND)
        await rows.event(tx, MADE, "req_2")
        await rows.event(tx, UNQUOTED, "req_2", at=START + SECOND)
        await rows.event(tx, UNQUOTED, "req_3")
    async with db.read() as tx:
        assert [await quote_failures(tx, f"req_{n}", UNQUOTED) for n in (1, 2, 3, 4)] == [3, 1, 0, 0]
