"""A process that starts with a wrong clock: nothing is believed, booked or ended before a cloud has shown the time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.services.billing import metering
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock, approved_now, clock_problem
from bot.services.sessions import expiration, idle_termination, overspend
from ledger.kernel.states import SessionState
from tests.support.clock import START, MachineClock, SteppedClock
from tests.support.world import World

HOUR = timedelta(hours=1)


@pytest.fixture
def machine(clock: SteppedClock) -> MachineClock:
    return MachineClock(clock)


def test_a_start_with_a_wrong_clock_waits_for_the_clouds(machine: MachineClock, clock: SteppedClock) -> None:
    machine.off = 3 * HOUR
    guarded = GuardedClock(machine, confirm_s=CONFIRM_S)
    assert approved_now(guarded) is None
    assert "no cloud has confirmed" in clock_problem(guarded)
    guarded.note_date("vast", START, 0.1)
    assert approved_now(guarded) is None, "one cloud may be wrong itself, and others were not asked yet"
    guarded.note_date("runpod", START, 0.1)
    assert approved_now(guarded) == clock.now()
    assert clock_problem(guarded)


def test_one_cloud_is_believed_when_no_other_answers(machine: MachineClock, clock: SteppedClock) -> None:
    machine.off = -3 * HOUR
    guarded = GuardedClock(machine, confirm_s=CONFIRM_S)
    guarded.note_date("vast", START, 0.1)
    clock.advance(CONFIRM_S + 1)
    assert approved_now(guarded) is None
    guarded.note_date("vast", clock.now(), 0.1)
    assert approved_now(guarded) == clock.now()


def test_no_wait_confirms_the_clock_of_a_start_while_no_cloud_answers(
    machine: MachineClock, clock: SteppedClock
) -> None:
    machine.off = timedelta(days=365)
    guarded = GuardedClock(machine, confirm_s=CONFIRM_S)
    clock.advance(3600)
    assert approved_now(guarded) is None
    assert "no cloud has confirmed" in clock_problem(guarded)
    guarded.note_date("vast", clock.now(), 0.1)
    assert approved_now(guarded) == clock.now()


def test_a_start_goes_on_after_a_minute_where_the_clouds_answer_without_a_time(
    machine: MachineClock, clock: SteppedClock
) -> None:
    guarded = GuardedClock(machine, confirm_s=CONFIRM_S)
    guarded.note_date("vast", None, 0.1)
    assert approved_now(guarded) is None
    clock.advance(CONFIRM_S)
    assert (approved_now(guarded), clock_problem(guarded)) == (clock.now(), "")


async def test_a_start_a_year_ahead_without_any_cloud_books_and_ends_nothing(w: World) -> None:
    """The machine has neither network nor the right time, and its process starts again."""
    running = await w.running(candidates=("vast",))
    before = [one.key for one in (await w.books()).entries]
    w.machine.off = timedelta(days=365)
    w.ctx = replace(w.ctx, clock=GuardedClock(w.machine, confirm_s=CONFIRM_S))
    w.clock.advance(600)
    assert await metering.accrue_due(w.ctx) == await expiration.deadlines_due(w.ctx) == 0
    assert await overspend.overspend_due(w.ctx) == await idle_termination.idle_terminations_due(w.ctx) == 0
    assert [one.key for one in (await w.books()).entries] == before
    session = (await w.view(running)).session
    assert session is not None
    assert session.state is SessionState.RUNNING
    w.machine.off = timedelta()
