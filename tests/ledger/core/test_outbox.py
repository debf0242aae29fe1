"""The outbox: one row per thing shown, and no version that nobody shows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from ledger.core.claims import Claim, claim, release
from ledger.core.events import announce, announce_again, announce_once
from ledger.core.moves import move
from ledger.core.outbox import (
    message_of,
    notification_dead,
    notification_of,
    notification_sent,
    notifications_of,
)
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.states import NotificationKind, NotificationState, RequestState
from ledger.models import Notification, Request
from tests.support import rows
from tests.support.clock import START

LEASE = timedelta(seconds=30)


async def say(db: Database, text: str = "hello", *, after_s: float = 0, subject: str = "s1") -> None:
    async with db.write() as tx:
        await announce(
            tx,
            at=START + timedelta(seconds=after_s),
            kind=NotificationKind.REPLY,
            subject=subject,
            destination="C1/U1",
            body={"text": text},
        )


async def shown(db: Database) -> Notification:
    async with db.read() as tx:
        return (await tx.scalars(select(Notification))).one()


async def take(db: Database, after_s: float = 0) -> Claim | None:
    now = START + timedelta(seconds=after_s)
    held = await claim(db, Notification, now=now, states={NotificationState.PENDING}, limit=1, lease=LEASE)
    return held[0] if held else None


async def sent(db: Database, held: Claim, version: int, ts: str = "1.0") -> None:
    async with db.write() as tx:
        await notification_sent(tx, held, version=version, channel="C1", ts=ts, at=START)


async def failed(db: Database, held: Claim, again_after_s: float, **values: Any) -> bool:
    async with db.write() as tx:
        return await release(tx, Notification, held, due_at=START + timedelta(seconds=again_after_s), **values)


async def test_announced_once_it_is_due_at_once(db: Database) -> None:
    await say(db)
    row = await shown(db)
    assert (row.version, row.sent_version, row.state) == (1, 0, NotificationState.PENDING)
    assert (row.due_at, row.created_at, row.body) == (START, START, {"text": "hello"})


async def test_announced_again_it_is_the_same_row_with_the_newest_body(db: Database) -> None:
    await say(db, "first")
    await say(db, "second", after_s=5)
    row = await shown(db)
    assert (row.version, row.body) == (2, {"text": "second"})
    assert row.created_at == START


async def test_sent_it_is_done_and_says_where_it_is(db: Database) -> None:
    await say(db)
    held = await take(db)
    assert held is not None
    await sent(db, held, 1)
    row = await shown(db)
    assert (row.state, row.sent_version, row.due_at) == (NotificationState.SENT, 1, None)
    assert (row.channel, row.ts, row.sent_at, row.claim_token) == ("C1", "1.0", START, None)
    assert await take(db, 9_999) is None


async def test_what_was_announced_during_the_sending_is_sent_too(db: Database) -> None:
    await say(db, "first")
    held = await take(db)
    assert held is not None
    await say(db, "second", after_s=1)
    assert await take(db, 2) is None  # Nobody else sends while the first sender works.
    await sent(db, held, 1)
    row = await shown(db)
    assert (row.state, row.version, row.sent_version, row.ts) == (NotificationState.PENDING, 2, 1, "1.0")
    again = await take(db, 2)
    assert again is not None
    await sent(db, again, 2)
    assert (await shown(db)).sent_version == 2
    assert await take(db, 9_999) is None


async def test_a_sender_whose_claim_ran_out_records_nothing(db: Database) -> None:
    await say(db)
    slow = await take(db)
    assert slow is not None
    quick = await take(db, 31)
    assert quick is not None
    await sent(db, slow, 1, ts="slow")
    assert (await shown(db)).ts is None
    await sent(db, quick, 1, ts="quick")
    await sent(db, slow, 1, ts="slow")
    assert (await shown(db)).ts == "quick"


async def test_a_failed_attempt_waits_unless_something_new_was_said(db: Database) -> None:
    await say(db)
    held = await take(db)
    assert held is not None
    assert await failed(db, held, 60, tries=1, error="down")
    assert await take(db, 59) is None
    held = await take(db, 60)
    assert held is not None
    await say(db, "news", after_s=61)
    assert await failed(db, held, 600, tries=2)
    assert (await shown(db)).due_at == START + timedelta(seconds=61)
    assert await take(db, 61) is not None


async def test_dead_is_dead_until_something_new_is_said(db: Database) -> None:
    await say(db)
    held = await take(db)
    assert held is not None
    async with db.write() as tx:
        await notification_dead(tx, held, version=1, error="channel_not_found")
    row = await shown(db)
    assert (row.state, row.error, row.due_at) == (NotificationState.DEAD, "channel_not_found", None)
    assert await take(db, 9_999) is None
    await say(db, "again")
    assert await take(db) is not None


async def test_a_newer_version_outlives_the_death_of_the_older(db: Database) -> None:
    await say(db)
    held = await take(db)
    assert held is not None
    await say(db, "newer", after_s=1)
    async with db.write() as tx:
        await notification_dead(tx, held, version=1, error="message_not_found")
    assert (await shown(db)).state is NotificationState.PENDING
    assert await take(db, 1) is not None


async def test_many_announce_the_same_at_once(db: Database) -> None:
    await asyncio.gather(*(say(db, f"text {n}") for n in range(20)))
    row = await shown(db)
    assert row.version == 20
    assert row.body["text"].startswith("text ")


async def test_senders_and_announcers_at_once_end_with_the_newest_shown(db: Database) -> None:
    """Whatever the interleaving: once all is quiet, the version that is wanted is the version that is shown."""

    async def announce_often() -> None:
        for n in range(15):
            await say(db, f"text {n}")

    async def send_often() -> None:
        for _ in range(25):
            held = await take(db)
            if held is not None:
                row = await shown(db)
                await sent(db, held, row.version)

    await asyncio.gather(announce_often(), announce_often(), send_often(), send_often())
    while (held := await take(db)) is not None:
        await sent(db, held, (await shown(db)).version)
    row = await shown(db)
    assert (row.version, row.sent_version, row.state) == (30, 30, NotificationState.SENT)


async def test_one_row_per_place(db: Database) -> None:
    await say(db, subject="s1")
    await say(db, subject="s2")
    async with db.write() as tx:
        await announce(tx, at=START, kind=NotificationKind.REPLY, subject="s1", destination="C2")
        await announce(tx, at=START, kind=NotificationKind.OPERATOR_PAGE, subject="s1", destination="C1/U1")
    async with db.read() as tx:
        assert [n.version for n in await tx.scalars(select(Notification))] == [1] * 4


async def test_where_the_message_of_a_request_is(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.QUOTING)
        await move(tx, Request, request.id, RequestState.PENDING, at=START, actor=SYSTEM)
    async with db.read() as tx:
        message = await message_of(tx, request.id, rows.CHANNEL)
        assert message is not None
        assert message.version == 1
        assert await message_of(tx, request.id, "C1") is None


async def test_what_is_announced_once_stays_as_it_was(db: Database) -> None:
    kind, page = NotificationKind.SESSION_ENDED, NotificationKind.OPERATOR_PAGE
    async with db.write() as tx:

        async def once(what: NotificationKind, subject: str, where: str, text: str) -> bool:
            body = {"text": text}
            return await announce_once(tx, at=START, kind=what, subject=subject, destination=where, body=body)

        assert await once(kind, "s1", "C2", "first")
        assert not await once(kind, "s1", "C2", "second")
        assert await once(kind, "s1", "C1", "third")
        assert await once(page, "s1", "C1", "another kind")
        assert await once(kind, "s2", "C1", "another subject")
    async with db.read() as tx:
        assert [(one.destination, one.body["text"]) for one in await notifications_of(tx, kind, "s1")] == [
            ("C2", "first"),
            ("C1", "third"),
        ]
        one = await notification_of(tx, kind, "s1", "C2")
        assert one is not None
        assert (one.body, one.version, one.due_at) == ({"text": "first"}, 1, START)
        assert await notification_of(tx, kind, "s2", "C2") is None
        assert await notifications_of(tx, kind, "s3") == []


async def test_what_was_shown_about_a_subject_is_due_again_and_nothing_else(db: Database) -> None:
    kind, other = NotificationKind.SESSION_ENDING, NotificationKind.SESSION_READY
    async with db.write() as tx:
        for what, subject in ((kind, "ses_a/1"), (kind, "ses_a/2"), (kind, "ses_ab/1"), (other, "ses_a")):
            await announce(tx, at=START, kind=what, subject=subject, destination="U1")
        shown = Notification.subject.in_(["ses_a/1", "ses_ab/1", "ses_a"])
        sent = {"state": NotificationState.SENT, "sent_version": 1, "due_at": None}
        await tx.execute(update(Notification).where(shown).values(sent))
    later = START + timedelta(minutes=1)
    async with db.write() as tx:
        await announce_again(tx, later, {kind}, "ses_a")
    async with db.read() as tx:
        found = {n.subject: (n.version, n.state) for n in await tx.scalars(select(Notification))}
    assert found == {
        "ses_a/1": (2, NotificationState.PENDING),
        "ses_a/2": (1, NotificationState.PENDING),  # Nobody was shown it.
        "ses_ab/1": (1, NotificationState.SENT),
        "ses_a": (1, NotificationState.SENT),
    }
