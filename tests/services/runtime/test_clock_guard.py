"""A machine's clock that lies: nothing is bought, nothing ends unasked, nothing is booked for good, ends still come."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.instances.power import PowerAction
from bot.services.billing import metering, true_up
from bot.services.instances import adoption, reconcile, unreachable_accounts
from bot.services.instances.adoption import Adopt
from bot.services.notifications.clock_check import clock_check_due
from bot.services.runtime.clock_guard import GuardedClock, approved_now, clock_problem, shared_now
from bot.services.sessions import idle_termination, overspend, retained_disks
from ledger.engine.db import Database
from ledger.kernel.grant import Grant
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from providers.contract import Charge, InstanceSpec, Provider
from providers.http import shown_at
from tests.services.instances.test_power import order
from tests.services.runtime.test_recovery_mode import rent, rowless
from tests.services.sessions.test_overspend import cheaper
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import START, MachineClock, SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, BOB, World, checked_world, facts

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def machine(clock: SteppedClock) -> MachineClock:
    return MachineClock(clock)


@pytest.fixture
def guarded(machine: MachineClock) -> GuardedClock:
    return GuardedClock(machine)


# ── the guard alone ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step_s", [-600, -86_400, 61, 3 * 3600, 365 * 86_400])
def test_a_wall_clock_that_jumps_is_not_followed_and_recovers_by_itself(
    guarded: GuardedClock, machine: MachineClock, clock: SteppedClock, step_s: float
) -> None:
    machine.off = step_s * SECOND
    clock.advance(30)
    assert guarded.now() == approved_now(guarded) == START + 30 * SECOND
    assert "this machine's clock shows" in clock_problem(guarded)
    machine.off = timedelta()
    assert (guarded.now(), clock_problem(guarded)) == (START + 30 * SECOND, "")


def test_small_steps_are_followed(guarded: GuardedClock, machine: MachineClock) -> None:
    machine.off = -59 * SECOND
    assert (guarded.now(), clock_problem(guarded)) == (START - 59 * SECOND, "")


def test_the_clouds_confirm_a_corrected_clock_and_the_database_alone_does_not(
    guarded: GuardedClock, machine: MachineClock, clock: SteppedClock
) -> None:
    guarded.note_date("vast", START, 0.1)
    machine.off = HOUR
    assert clock_problem(guarded)
    clock.advance(5)
    guarded.note_database(machine.now(), 0.1)
    guarded.note_date("vast", clock.now(), 0.1)
    assert guarded.now() == clock.now()
    clock.advance(5)
    guarded.note_date("vast", machine.now(), 0.1)
    assert (guarded.now(), clock_problem(guarded)) == (machine.now(), "")


def test_the_majority_of_the_clouds_counts_and_the_machine_decides_a_tie(
    guarded: GuardedClock, clock: SteppedClock
) -> None:
    guarded.note_date("vast", START, 0.1)
    guarded.note_date("runpod", START + HOUR, 0.1)
    assert clock_problem(guarded) == ""
    guarded.note_date("lambda", START + HOUR, 0.1)
    assert clock_problem(guarded).endswith("UTC, and lambda, runpod another time")
    assert guarded.now() == START
    clock.advance(601)  # What they showed is too old to count.
    assert clock_problem(guarded) == ""


def test_a_database_with_another_time_is_a_doubt(guarded: GuardedClock, clock: SteppedClock) -> None:
    guarded.note_database(START + 61 * SECOND, 0.1)
    assert clock_problem(guarded) == "this machine's clock shows 09:00:00 UTC, and the database's 09:01:01 UTC"
    assert shared_now(guarded) == START + 61 * SECOND
    clock.advance(5)
    guarded.note_database(clock.now(), 0.1)
    assert clock_problem(guarded) == ""


def test_an_answer_that_took_long_shows_nothing(guarded: GuardedClock) -> None:
    guarded.note_date("vast", START - HOUR, 31.0)
    guarded.note_database(START - HOUR, 31.0)
    assert (clock_problem(guarded), shared_now(guarded)) == ("", START)


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"date": "Mon, 02 Mar 2026 09:00:00 GMT"}, START),
        ({"date": "Mon, 02 Mar 2026 08:00:00 GMT", "age": "3600"}, START),
        ({"date": "Mon, 02 Mar 2026 09:00:00 -0000"}, START),
        ({"date": "yesterday"}, None),
        ({"date": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"date": "Mon, 02 Mar 2026 09:00:00 GMT", "age": "9" * 30}, None),
        ({}, None),
    ],
)
def test_the_time_of_an_answer(headers: dict[str, str], shown: object) -> None:
    assert shown_at(headers) == shown


# ── the service ──────────────────────────────────────────────────────────────────────────────────


async def state(w: World, request_id: str) -> SessionState:
    session = (await w.view(request_id)).session
    assert session is not None
    return session.state


async def test_three_hours_ahead_for_twelve_seconds_destroys_and_books_nothing(w: World) -> None:
    running = await w.running(candidates=("vast",))
    before = [one.key for one in (await w.books()).entries]
    w.machine.off = 3 * HOUR
    await w.run(12, 3)
    assert await overspend.overspend_due(w.ctx) == await idle_termination.idle_terminations_due(w.ctx) == 0
    w.machine.off = timedelta()
    await w.run(60)
    assert await state(w, running) is SessionState.RUNNING
    assert len(w.alive()) == 1
    assert [one.key for one in (await w.books()).entries] == before


async def test_ten_minutes_back_refuses_no_call_buys_nothing_and_is_paged_once(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    """On SQLite, because the clock of a real database server is not the one of the test."""
    async with checked_world(sqlite_db, clock) as w:
        request_id = await w.approved(candidates=("vast",))
        w.machine.off = -600 * SECOND
        await clock_check_due(w.ctx)
        await w.run(300, 30)
        assert await clock_check_due(w.ctx) == 0
        assert w.engine.creates == []
        assert await state(w, request_id) is SessionState.QUEUED
        found = await reconcile.observe(w.ctx, "vast")
        assert "this machine's clock shows" in found.problem
        w.ctx.hints.clock.clear()
        w.machine.off = timedelta()
        await clock_check_due(w.ctx)
        assert w.ctx.hints.clock.is_set()  # The bills are read now, and not an hour later.
        await w.run(120, 30)
        assert await state(w, request_id) is SessionState.RUNNING
        pages = [one for one in (await w.books()).notifications if one.subject.startswith("clock/")]
        assert [(one.version, "is right again" in one.body["text"]) for one in pages] == [(2, True)]


@pytest.mark.parametrize("off", [-600 * SECOND, 3 * HOUR])
@pytest.mark.slow
async def test_an_approved_end_comes_when_it_is_due_whatever_the_wall_clock_shows(w: World, off: timedelta) -> None:
    running = await w.running(candidates=("vast",), hours=Decimal(1))
    w.machine.off = off
    await w.run(1800, 60)
    assert len(w.alive()) == 1
    await w.run(1860, 30)
    assert await state(w, running) is SessionState.TERMINATING
    assert w.alive() == []
    booked = [one for one in (await w.books()).entries if one.key.endswith("/final")]
    assert booked == [], "the final cost waits for a trusted clock"
    w.machine.off = timedelta()
    await w.run(180, 30)
    assert await state(w, running) is SessionState.TERMINATED


async def test_a_person_ends_a_session_while_the_clock_is_wrong(w: World) -> None:
    running = await w.running(candidates=("vast",))
    w.machine.off = 3 * HOUR
    assert (await w.end(running)).ok
    await w.run(60)
    assert w.alive() == []


async def test_no_orphan_is_ended_and_no_unknown_outcome_given_up_while_the_clock_is_wrong(w: World) -> None:
    w.arm("create_lost_reply", "vast")
    lost = await w.approved(candidates=("vast",))
    await w.settle()
    w.machine.off = 3 * HOUR
    await w.run(1800, 60)
    assert all(row.state is not OrphanState.CONDEMNED for row in (await w.books()).orphans)
    assert [row.state for row in (await w.view(lost)).instances] in ([InstanceState.UNKNOWN], [InstanceState.LIVE])
    w.machine.off = timedelta()
    await w.run(120)


async def test_no_time_is_bought_while_the_clock_is_wrong(w: World) -> None:
    running = await w.running(candidates=("vast",))
    more = await w.more(running)
    w.machine.off = 3 * HOUR
    refused = await w.decide(str(more.data["request_id"]))
    assert (refused.ok, refused.code) == (False, "clock_wrong")
    w.machine.off = timedelta()
    assert (await w.decide(str(more.data["request_id"]))).ok


async def test_completed_hours_are_booked_when_the_clock_is_trusted_again(w: World) -> None:
    await w.running(candidates=("vast",))
    w.machine.off = -600 * SECOND
    w.clock.advance(3700)
    assert await metering.accrue_due(w.ctx) == 0
    w.machine.off = timedelta()
    assert await metering.accrue_due(w.ctx) > 0


@pytest.mark.both_databases
async def test_only_a_database_with_a_clock_of_its_own_is_compared(db: Database, clock: SteppedClock, w: World) -> None:
    written = await clock_check_due(w.ctx)
    assert written == (0 if db.dialect == "sqlite" else 1), "a test's clock is years from the database's"
    assert ("the database's" in clock_problem(w.ctx.clock)) == (db.dialect != "sqlite")


# ── what asks the guard: the measured time is right here, and only the doubt keeps it from acting ────────────────────


def doubted(w: World) -> None:
    """The database shows another time from now on, for ten minutes."""
    guard(w).note_database(w.ctx.clock.now() + HOUR, 0.1)


def trusted(w: World) -> None:
    guard(w).note_database(w.ctx.clock.now(), 0.1)


def guard(w: World) -> GuardedClock:
    assert isinstance(w.ctx.clock, GuardedClock)
    return w.ctx.clock


async def test_no_start_is_sent_in_doubt(w: World) -> None:
    request_id = await w.running(candidates=("runpod",))
    await order(w, request_id, PowerAction.STOP)
    await w.run(60, 20)
    await order(w, request_id, PowerAction.START)
    doubted(w)
    await w.run(120, 20)
    assert await state(w, request_id) is SessionState.STOPPED
    trusted(w)
    await w.run(120, 20)
    assert await state(w, request_id) is SessionState.RUNNING


async def test_no_request_expires_and_no_launch_is_committed_in_doubt(w: World) -> None:
    waits = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()
    ready = await w.approved(candidates=("runpod",))
    w.clock.advance(w.ctx.policy.request_ttl_s)
    doubted(w)
    await w.settle()
    assert (await w.view(waits)).request.state is RequestState.PENDING
    assert [row.state for row in (await w.view(ready)).instances] == [InstanceState.READY]
    trusted(w)
    await w.run(60)
    assert (await w.view(waits)).request.state is RequestState.EXPIRED


async def test_a_doubt_that_begins_while_a_launch_is_prepared_keeps_it_from_being_sent(w: World) -> None:
    class DoubtsNow(InFront):
        async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
            doubted(w)
            return await self.inner.prepare(spec, grant)

    w.wrap("vast", lambda inner: cast("Provider", DoubtsNow(inner)))
    request_id = await w.approved(candidates=("vast",))
    await w.settle()
    assert (w.engine.creates, (await w.view(request_id)).instances[0].state) == ([], InstanceState.READY)


async def test_no_silence_ends_and_no_overspend_is_asked_about_in_doubt(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), hours=Decimal(4))
        await pass_time(w, 1)
        agent(w).silent = True
        await pass_time(w, w.ctx.policy.unresponsive_s - 30)
        await cheaper(w)
        doubted(w)
        w.clock.advance(60)
        assert await overspend.overspend_due(w.ctx) == await idle_termination.idle_terminations_due(w.ctx) == 0
        trusted(w)
        assert await overspend.overspend_due(w.ctx) == await idle_termination.idle_terminations_due(w.ctx) == 1


async def test_no_disk_is_booked_and_no_bill_is_read_in_doubt(w: World) -> None:
    read = []

    class Billed(InFront):
        async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
            read.append(until)
            return tuple(await self.inner.charges(since, until))

    w.wrap("runpod", lambda inner: cast("Provider", Billed(inner)))
    request_id = await w.running(candidates=("runpod",), hours=Decimal(8))
    await order(w, request_id, PowerAction.STOP)
    await w.run(60, 20)
    await retained_disks.disks_due(w.ctx)
    w.clock.advance(2 * 3600)
    before = len((await w.books()).entries)
    doubted(w)
    await retained_disks.disks_due(w.ctx)
    await true_up.reconcile_due(w.ctx)
    assert (len((await w.books()).entries), read) == (before, [])
    trusted(w)
    await retained_disks.disks_due(w.ctx)
    booked = len((await w.books()).entries)
    assert booked == before + 2  # Two hours of the volume, which costs more while its pod is stopped.
    await true_up.reconcile_due(w.ctx)
    assert len(read) == 1


async def test_nothing_is_adopted_or_booked_for_it_in_doubt(w: World) -> None:
    orphan = await rowless(w)
    booked = len((await w.books()).entries)
    command = Adopt(orphan.id, Decimal(2), facts(BOB), ALICE, "it trains", "C0GPU")
    doubted(w)
    refused = await adoption.adopt_orphan(w.ctx, command)
    books = await w.books()
    assert (refused.code, len(books.entries), [*books.instances]) == ("clock_wrong", booked, [])
    trusted(w)
    assert (await adoption.adopt_orphan(w.ctx, command)).code == "adopted"


async def test_a_listing_ends_and_closes_nothing_in_doubt(w: World) -> None:
    request_id = await w.running(candidates=("vast",))
    view = await w.view(request_id)
    assert view.instances[0].ref is not None
    twin = rent(w, view.instances[0].name)
    w.clouds["vast"].disturb(view.instances[0].ref, "vanish")
    doubted(w)
    await w.run(480, 30)
    assert (await w.books()).orphans == ()
    assert (await w.view(request_id)).instances[0].state is InstanceState.LIVE
    trusted(w)
    await w.run(300, 30)
    assert [(row.ref, row.state) for row in (await w.books()).orphans] == [(twin, OrphanState.GONE)]
    assert (await w.view(request_id)).instances[0].state is InstanceState.GONE


async def test_nothing_is_written_off_in_doubt(w: World) -> None:
    await w.running(candidates=("vast",))
    (row,) = (await w.books()).instances
    w.use({name: one for name, one in w.ctx.providers.items() if name != "vast"})
    doubted(w)
    refused = await unreachable_accounts.write_off(w.ctx, [row.id], BOB, "the account is closed")
    assert (refused.ok, refused.code) == (False, "clock_wrong")
    trusted(w)
    assert (await unreachable_accounts.write_off(w.ctx, [row.id], BOB, "the account is closed")).ok
    for instance in w.instances():
        w.clouds["vast"].disturb(instance.ref, "vanish")
