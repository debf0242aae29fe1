"""What a wrong clock put off is made good when the clocks agree, or when the clouds correct it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.services.notifications.clock_check import UNCONFIRMED_S, clock_check_due
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from ledger.core import announce, claim
from ledger.engine.db import Database
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Notification
from tests.support.clock import SteppedClock
from tests.support.world import CHANNEL, checked_world

SECOND = timedelta(seconds=1)


async def test_a_message_that_a_wrong_clock_put_off_for_a_year_is_sent_when_the_clocks_agree(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    """A process that starts with a wrong clock writes and claims messages by it, until a cloud's time corrects it."""
    async with checked_world(sqlite_db, clock) as w:
        next_year, lease = clock.now() + timedelta(days=365), timedelta(minutes=1)
        async with w.ctx.db.write() as tx:
            await announce(tx, next_year, NotificationKind.OPERATOR_PAGE, "page/x", destination=CHANNEL, body={})
        pending = {NotificationState.PENDING}
        assert await claim(w.ctx.db, Notification, now=next_year, states=pending, limit=9, lease=lease)
        await w.run(120, 30)
        assert ("page/x" in [subject for _, subject, *_ in w.board.shown]) is False
        w.machine.off = -600 * SECOND
        await clock_check_due(w.ctx)
        w.machine.off = timedelta()
        await clock_check_due(w.ctx)
        await w.run(60, 30)
        assert "page/x" in [subject for _, subject, *_ in w.board.shown]


@pytest.mark.parametrize("off", [timedelta(hours=1), timedelta(days=365)])
async def test_an_end_that_somebody_orders_while_the_clock_is_ahead_comes_as_soon_as_the_clouds_correct_it(
    sqlite_db: Database, clock: SteppedClock, off: timedelta
) -> None:
    """A process started a year ahead; its clock stays wrong, and only the clouds show what time it is."""
    async with checked_world(sqlite_db, clock) as w:
        request_id = await w.running()
        w.machine.off = off
        wrong = GuardedClock(w.machine, confirm_s=CONFIRM_S)
        w.ctx = replace(w.ctx, clock=wrong)
        await clock_check_due(w.ctx)
        assert (await w.end(request_id)).ok
        for cloud in ("vast", "runpod"):
            wrong.note_date(cloud, clock.now(), 0.1)
        assert abs(wrong.now() - clock.now()) < SECOND
        assert wrong.problem()
        await clock_check_due(w.ctx)
        await w.run(120, 20)
        assert w.alive() == []
        w.machine.off = timedelta()


async def test_a_message_is_sent_when_the_clouds_corrected_the_clock_between_two_checks(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    """No cloud answered for a minute, so the wrong clock was trusted, and no check ever finds it in doubt."""
    async with checked_world(sqlite_db, clock) as w:
        w.machine.off = timedelta(days=365)
        guarded = GuardedClock(w.machine)
        w.ctx = replace(w.ctx, clock=guarded)
        assert await clock_check_due(w.ctx) == 0
        async with w.ctx.db.write() as tx:
            await announce(tx, guarded.now(), NotificationKind.OPERATOR_PAGE, "page/x", destination=CHANNEL, body={})
        guarded.note_date("vast", clock.now(), 0.1)
        w.machine.off = timedelta()
        assert guarded.now() == clock.now()
        await clock_check_due(w.ctx)
        await w.run(60, 30)
        assert "page/x" in [subject for _, subject, *_ in w.board.shown]


async def test_a_start_that_no_cloud_confirms_for_five_minutes_is_paged_once(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    """No approved end comes until then, and nobody else notices that."""
    async with checked_world(sqlite_db, clock) as w:
        started = GuardedClock(w.machine, confirm_s=CONFIRM_S)
        w.ctx = replace(w.ctx, clock=started)
        clock.advance(UNCONFIRMED_S - 1)
        assert await clock_check_due(w.ctx) == 0
        clock.advance(1)
        assert await clock_check_due(w.ctx) == 1
        assert await clock_check_due(w.ctx) == 0
        (page,) = (await w.books()).notifications
        assert "no cloud has shown it the time" in page.body["text"]
        started.note_date("vast", clock.now(), 0.1)
        assert await clock_check_due(w.ctx) == 1
        (page,) = (await w.books()).notifications
        assert page.body["text"].endswith("is right again.")


async def test_the_page_of_a_start_says_that_the_clock_is_wrong_once_the_clouds_have_shown_it(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.machine.off = timedelta(hours=1)
        started = GuardedClock(w.machine, confirm_s=CONFIRM_S)
        w.ctx = replace(w.ctx, clock=started)
        clock.advance(UNCONFIRMED_S)
        assert await clock_check_due(w.ctx) == 1
        started.note_date("vast", clock.now(), 0.1)
        assert await clock_check_due(w.ctx) == 1
        assert await clock_check_due(w.ctx) == 0
        (page,) = (await w.books()).notifications
        assert "seems wrong" in page.body["text"]
        w.machine.off = timedelta()


async def test_a_process_without_clouds_has_nothing_to_wait_for(sqlite_db: Database, clock: SteppedClock) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.use({})
        w.ctx = replace(w.ctx, clock=GuardedClock(w.machine, confirm_s=CONFIRM_S))
        clock.advance(UNCONFIRMED_S)
        assert await clock_check_due(w.ctx) == 0
