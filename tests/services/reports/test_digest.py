"""Digests: each once, on any replica and however long Slack is away, with the figures of its own day."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.services.billing import rollup
from bot.services.outbox import dispatch
from bot.services.reports import digest
from bot.services.reports.digest_types import DigestDocument
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from ledger.core.writes import book
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, NotificationKind, SessionState
from ledger.models import Notification
from tests.support import rows
from tests.support.builders import asked
from tests.support.clock import START
from tests.support.world import World

DAY_S = 86_400.0
HOUR = timedelta(hours=1)


async def shown(w: World) -> list[Notification]:
    return [row for row in (await w.books()).notifications if row.kind is NotificationKind.DIGEST]


async def used(w: World, owner: Actor, cloud: str, usd: str, at: timedelta, **session: Any) -> str:
    """A session whose machine has cost so much, booked `at` after the start."""
    async with w.ctx.db.write() as tx:
        asked = await rows.request(tx, requester=owner.ref)
        state = session.pop("state", SessionState.TERMINATED)
        assert isinstance(state, SessionState)
        mine = await rows.session(tx, state, of=asked, label="moe", **session)
        there = InstanceState.GONE if mine.ended_at else InstanceState.LIVE
        instance = await rows.instance(tx, there, of=mine, cloud=cloud, price_usd_h=Decimal(2))
        await book(
            tx, key=mine.id, kind=EntryKind.ACCRUE, debit=f"session:{mine.id}", credit=f"payable:{cloud}:acct-1",
            amount_usd=Decimal(usd), at=START + at, session_id=mine.id, instance_id=instance.id, component="gpu",
        )  # fmt: skip
        return mine.id


@pytest.mark.both_databases
async def test_a_day_is_sent_once_by_any_replica_and_late_when_slack_was_away(bare: World) -> None:
    w = bare
    w.tune(digest_weekly="", budgets={"global": {"monthly": Decimal(100)}})
    assert await digest.digest_due(w.ctx) == 0  # Nothing was ever asked for, so there is nothing to tell.
    program = Actor(ActorKind.CONSUMER, "trainer")
    for day in range(5):
        await used(w, rows.ADA, "vast", "1", timedelta(days=day, hours=1), ended_at=START + timedelta(days=day))
    early: dict[str, Any] = {
        "ended_at": START + timedelta(days=5, hours=3),
        "deadline": START + timedelta(days=5, hours=5),
    }
    early |= {"end_code": "completed", "end_reason": "Done."}
    await used(w, program, "runpod", "40", timedelta(days=5, hours=2), **early)
    await used(w, rows.BEN, "vast", "1", timedelta(days=6), state=SessionState.RUNNING)
    async with w.ctx.db.write() as tx:
        await rows.stray(tx, at=START + timedelta(days=5, hours=1))
    await rollup.roll_due(w.ctx)
    w.clock.advance(6 * DAY_S)  # It is the morning of the seventh day, 09:00.
    w.board.down = True
    other = w.replica()
    try:
        done = await asyncio.gather(digest.digest_due(w.ctx), digest.digest_due(other.ctx))
        assert sum(done) == 1
        await dispatch.deliver_due(w.ctx, w.board)
        w.clock.advance(DAY_S / 2)
        assert await digest.digest_due(other.ctx) == 0
    finally:
        await other.ctx.db.close()
    (row,) = await shown(w)
    assert (row.subject, row.destination, row.sent_version) == ("daily/2026-03-08", "channel:approvals", 0)
    w.board.down = False
    for _ in range(3):
        await dispatch.deliver_due(w.ctx, w.board)
        w.clock.advance(400)
    assert w.board.shown == [("digest", "daily/2026-03-08", "channel:approvals", 1)]
    found = DigestDocument.model_validate(row.body)
    assert found.first == date(2026, 3, 7)
    assert (found.spent_usd, found.before_usd, found.month_usd) == (Decimal(40), Decimal(1), Decimal(45))
    assert found.groups["owner"] == (("consumer:trainer", Decimal(40)),)
    assert found.groups["cloud"] == (("runpod", Decimal(40)),)
    assert found.forecast_usd is None  # Six days are known.
    assert found.anomalies == (
        "in all: $40.00, usually $1.00 a day",
        "cloud runpod: $40.00, usually nothing",
        "owner consumer:trainer: $40.00, usually nothing",
        "gpu RTX 4090: $40.00, usually $1.00 a day",
    )
    assert found.ended_by == {"completed": 1}
    assert (found.running_in_all, found.running_usd_h, found.saved_usd) == (1, Decimal(2), Decimal(4))
    assert [one.cloud for one in found.orphans] == ["vast"]
    assert found.budgets == ("global: monthly $53.00 left of $100.00 (47% used: $46.00 spent, $1.00 reserved)",)
    assert (found.days[-1], len(found.days)) == ((date(2026, 3, 7), Decimal(40)), 14)


async def test_a_wrong_clock_announces_no_digest_of_a_day_that_has_not_come(bare: World) -> None:
    w = bare
    w.tune(digest_weekly="")
    await used(w, rows.ADA, "vast", "1", HOUR, ended_at=START)
    w.clock.advance(DAY_S)
    w.machine.off = timedelta(days=365)
    guarded = GuardedClock(w.machine, confirm_s=CONFIRM_S)
    w.ctx = replace(w.ctx, clock=guarded)
    assert await digest.digest_due(w.ctx) == 0
    for cloud in ("vast", "runpod"):
        guarded.note_date(cloud, w.clock.now(), 0.1)
    w.machine.off = timedelta()
    assert await digest.digest_due(w.ctx) == 1
    assert [row.subject for row in await shown(w)] == ["daily/2026-03-03"]


async def test_a_week_is_told_on_its_day_in_peoples_own_zone(bare: World) -> None:
    w = bare
    w.tune(digest_at="", digest_channel="C0MONEY")
    await used(w, rows.ADA, "vast", "7", 14 * HOUR, ended_at=START)  # 23:00 UTC: the next day in Berlin.
    w.clock.advance(8 * DAY_S - 2 * 3600)
    assert await digest.digest_due(w.ctx) == 0
    w.tune(digest_at="09:00", digest_timezone="Europe/Berlin")
    with asked() as said:
        assert await digest.digest_due(w.ctx) == 1
    # Of each digest: whether there is anything to tell (2), money (4), sessions (4), other things (3), what is written.
    assert len(said) <= 17, said  # Two of them once a month, for reservations.
    assert await digest.digest_due(w.ctx) == 0
    # The week's digest replaces that of its day.
    (weekly,) = (DigestDocument.model_validate(row.body) for row in await shown(w))
    assert {row.destination for row in await shown(w)} == {"C0MONEY"}
    assert weekly.weekly
    assert (weekly.first, weekly.last, weekly.spent_usd) == (date(2026, 3, 2), date(2026, 3, 8), Decimal(7))
    assert dict(weekly.days)[date(2026, 3, 3)] == 7


async def steady(w: World, since: timedelta) -> None:
    """A session whose H100 runs since then."""
    async with w.ctx.db.write() as tx:
        mine = await rows.session(tx, SessionState.RUNNING, label="moe", gpu="H100-SXM", created_at=START + since)
        await rows.instance(
            tx, InstanceState.LIVE, of=mine, cloud="lambda", price_usd_h=Decimal(4), billing_from=START + since
        )


def advised(row: Notification) -> tuple[str, ...]:
    return DigestDocument.model_validate(row.body).reservations


@pytest.mark.both_databases
async def test_a_cheaper_reservation_is_said_in_the_first_digest_of_a_month_once(bare: World) -> None:
    w = bare
    w.tune(digest_weekly="")
    await steady(w, timedelta(days=-2))
    w.clock.advance(29 * DAY_S)  # The 31st of March: the month was not judged yet, and 29 days are known.
    assert await digest.digest_due(w.ctx) == 1
    w.clock.advance(DAY_S)  # The 1st of April, a Wednesday.
    other = w.replica()
    try:
        assert sum(await asyncio.gather(digest.digest_due(w.ctx), digest.digest_due(other.ctx))) == 1
        for _ in range(3):
            w.clock.advance(DAY_S)
            assert await digest.digest_due(other.ctx) == 1
    finally:
        await other.ctx.db.close()
    march, april, *later = [advised(row) for row in sorted(await shown(w), key=lambda row: row.subject)]
    (said,) = april
    assert said.startswith("H100-SXM at lambda: 720 GPU-hours in 30 days cost $2,880.00. 1 reserved GPU,")
    assert (march, later) == ((), [(), (), ()])
    await dispatch.deliver_due(w.ctx, w.board)
    w.clock.advance(27 * DAY_S)  # The 1st of May, a Friday.
    assert await digest.digest_due(w.ctx) == 1
    assert [advised(row) != () for row in await shown(w) if row.subject == "daily/2026-05-01"] == [True]


async def test_less_than_thirty_days_are_no_steady_use(bare: World) -> None:
    w = bare
    w.tune(digest_weekly="")
    await steady(w, timedelta(days=2))
    w.clock.advance(30 * DAY_S)
    assert await digest.digest_due(w.ctx) == 1
    assert [advised(row) for row in await shown(w)] == [()]
