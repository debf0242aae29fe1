"""Facts about terminations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger.core.events import announce
from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, NotificationKind, NotificationState, SessionState
from ledger.models import Node, Notification
from ledger.queries.terminations import Said, approved_ends, behind, ordered_by, unheard
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
ENDING = NotificationKind.SESSION_ENDING


async def said(tx: Tx, subject: str, where: str = "C1", **values: Any) -> None:
    """A notification with these columns, as an attempt or an announcement left them."""
    facts: dict[str, Any] = {"state": NotificationState.PENDING, "created_at": START, "due_at": START} | values
    tx.add(
        Notification(id=f"ntf_{subject}_{where}", kind=ENDING, subject=subject, destination=where, error="", **facts)
    )
    await tx.flush()


async def test_an_end_waits_until_every_place_was_tried(db: Database) -> None:
    later = START + HOUR
    async with db.write() as tx:
        await announce(tx, at=START, kind=ENDING, subject="new", destination="C1")
        await said(tx, "shown", state=NotificationState.SENT, due_at=None, sent_version=1)
        await said(tx, "half", "C1", state=NotificationState.SENT, due_at=None, sent_version=1)
        await said(tx, "half", "C2")
        await said(tx, "dead", state=NotificationState.DEAD, due_at=None)
        await said(tx, "again", due_at=later, sent_version=1)
        await said(tx, "now", claim_token="x", due_at=later, sent_version=1)
        failed = Notification(
            id="ntf_f", kind=ENDING, subject="failed", destination="C1", state=NotificationState.PENDING,
            created_at=START, due_at=later, error="no such channel",
        )  # fmt: skip
        tx.add(failed)
    first = {"new": True, "shown": False, "half": True, "dead": False, "again": False, "now": False, "failed": False}
    since = {"new": True, "shown": False, "half": True, "dead": False, "again": False, "now": True, "failed": False}
    async with db.read() as tx:
        for subject, waits in first.items():
            assert await unheard(tx, [Said(ENDING, subject)]) is waits, subject
        for subject, waits in since.items():
            assert await unheard(tx, [Said(ENDING, subject, START)]) is waits, subject
        assert await unheard(tx, [Said(ENDING, "again", later)])
        assert not await unheard(tx, [Said(ENDING, "new", START - HOUR)])
        assert not await unheard(tx, [Said(NotificationKind.SESSION_IDLE, "new"), Said(ENDING, "none")])
        assert await unheard(tx, [Said(ENDING, "shown"), Said(ENDING, "half")])


async def test_what_is_behind_an_instance(db: Database) -> None:
    async with db.write() as tx:
        bare, reports = await rows.instance(tx), await rows.instance(tx)
        tx.add(Node(instance_id=reports.id, session_id=reports.session_id, token_hash="x", made_at=START))
    async with db.read() as tx:
        request, session, node = await behind(tx, bare.id)
        assert (request.id, session.id, node) == (bare.request_id, bare.session_id, None)
        _, session, node = await behind(tx, reports.id)
    assert (session.id, node and node.instance_id) == (reports.session_id, reports.id)


async def test_who_ordered_an_end(db: Database) -> None:
    async with db.write() as tx:
        for n, (actor, subject, kind, after) in enumerate(
            (
                (rows.ADA, "ses_1", EventKind.SESSION_MOVED, "terminating"),
                (rows.BEN, "ses_1", EventKind.SESSION_MOVED, "terminating"),
                (SYSTEM, "ses_1", EventKind.SESSION_MOVED, "terminated"),
                (SYSTEM, "ses_1", EventKind.INSTANCE_MOVED, "terminating"),
                (SYSTEM, "ses_2", EventKind.SESSION_MOVED, "terminating"),
            )
        ):
            await rows.event(tx, kind, subject, at=START + n * HOUR, actor=actor.ref, after=after)
    async with db.read() as tx:
        found: list[Actor | None] = [await ordered_by(tx, f"ses_{n}") for n in (1, 2, 3)]
        assert found == [rows.BEN, SYSTEM, None]


async def test_until_when_instances_were_approved_to_run(db: Database) -> None:
    running, over = SessionState.RUNNING, SessionState.TERMINATED
    expected, ids = {}, []
    async with db.write() as tx:
        for state, sent_at, values, end in (
            (running, START, {"deadline": START + 5 * HOUR}, START + 5 * HOUR),
            # Sent late, it may run for its hours all the same.
            (running, START + 4 * HOUR, {"deadline": START + 5 * HOUR}, START + 6 * HOUR),
            (SessionState.QUEUED, START + HOUR, {}, START + 3 * HOUR),
            (SessionState.QUEUED, None, {}, START + 2 * HOUR),
            (SessionState.FAILED, START, {}, START + 2 * HOUR),
            (over, START, {"end_code": EndReason.ASKED}, None),
            (SessionState.TERMINATING, START, {"end_code": EndReason.ASKED}, None),
            (over, START, {"end_code": EndReason.LOST, "deadline": None}, START + 2 * HOUR),
        ):
            session = await rows.session(tx, state, **values)
            row = await rows.instance(tx, InstanceState.LIVE, of=session, sent_at=sent_at)
            ids.append(row.id)
            if end is not None:
                expected[row.id] = end
        await rows.instance(tx, InstanceState.LIVE)
    async with db.read() as tx:
        assert await approved_ends(tx, [*ids, "ins_none"]) == expected
        assert await approved_ends(tx, []) == {}
