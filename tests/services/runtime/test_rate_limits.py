"""Replicas on one ledger share the turns at a cloud: together they never call more often than it allows."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.rate_limits import LedgerPacer
from ledger.engine.db import Database
from providers.capabilities import Capabilities
from providers.rate_limits import Pace, Turn
from providers.registry import REGISTRY
from tests.support.clock import SteppedClock
from tests.support.databases import sqlite_url

#: cloud, group → at most so many calls in so many seconds, as the cloud documents it.
DOCUMENTED = {
    ("lambda", "any"): (1, 1.0),
    ("lambda", "launch"): (1, 12.0),
    ("tensordock", "any"): (100, 60.0),
    ("vast", "search"): (10, 60.0),
    ("vast", "create"): (1, 4.5),
    ("vast", "list"): (1, 1.0),
    ("runpod", "v2"): (60, 60.0),
}


@pytest.fixture
async def replicas(db: Database, clock: SteppedClock) -> AsyncIterator[tuple[LedgerPacer, LedgerPacer]]:
    """The pacers of two processes: connections of their own to one ledger."""
    other = Database(db.url.render_as_string(hide_password=False))
    yield LedgerPacer(db, clock), LedgerPacer(other, clock)
    await other.close()


def able(cloud: str) -> Capabilities:
    return REGISTRY[cloud].connect({}, SteppedClock()).capabilities


def most_within(at_s: list[float], window_s: float) -> int:
    """The most calls in any window of this length."""
    times = sorted(at_s)
    return max(bisect_left(times, start + window_s - 1e-6) - place for place, start in enumerate(times))


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("cloud", "group"),
    [pytest.param(*of, marks=pytest.mark.slow if most >= 60 else ()) for of, (most, _) in DOCUMENTED.items()],
)
async def test_two_replicas_together_keep_the_documented_limit(
    replicas: tuple[LedgerPacer, LedgerPacer], clock: SteppedClock, cloud: str, group: str
) -> None:
    pace, (most, window_s) = able(cloud).rate_limits[group], DOCUMENTED[cloud, group]
    rng, at_s = random.Random(7), list[float]()
    while clock.monotonic() < window_s * 1.5:
        askers = [rng.choice(replicas) for _ in range(rng.randint(1, 4) if most < 60 else 20)]
        now_s = clock.monotonic()
        turns = await asyncio.gather(*(one.reserve("cloud/account/group", pace) for one in askers))
        at_s += [now_s + turn.wait_s for turn in turns if turn.taken]
        clock.advance(rng.uniform(0, window_s / 8))
    at_s = [at for at in at_s if at < clock.monotonic()]

    assert len(at_s) > most, "the limit was reached at all"
    assert most_within(at_s, window_s) <= most


async def test_a_refused_turn_is_not_taken_and_a_pause_is_shared(
    replicas: tuple[LedgerPacer, LedgerPacer], clock: SteppedClock
) -> None:
    (one, other), pace = replicas, Pace(8.0, wait_max_s=10.0)
    assert [await one.reserve("x", pace), await other.reserve("x", pace)] == [Turn(0), Turn(8)]
    assert await one.reserve("x", pace) == await other.reserve("x", pace) == Turn(16, taken=False)
    await one.pause("y", 5.0)
    await one.pause("y", 2.0)
    assert await other.reserve("y", pace) == Turn(5)
    clock.advance(100)
    assert await other.reserve("x", pace) == Turn(0)


async def test_a_clock_that_steps_back_delays_nobody_for_longer_than_a_turn(
    replicas: tuple[LedgerPacer, LedgerPacer], clock: SteppedClock
) -> None:
    one, other = replicas
    await one.reserve("x", Pace(1.0))
    await one.pause("y", 5.0)
    clock.jump(timedelta(seconds=-600))
    assert await other.reserve("x", Pace(1.0)) == Turn(1)
    assert await one.reserve("x", Pace(1.0)) == Turn(2)
    assert await other.reserve("y", Pace(1.0)) == Turn(5)


async def test_a_fast_replica_delays_no_other_and_waits_for_its_turn_where_the_database_shows_the_time(
    db: Database, clock: SteppedClock
) -> None:
    machine = SteppedClock(clock.now() + timedelta(seconds=300))
    guarded = GuardedClock(machine)
    guarded.note_database(clock.now(), 0.1)
    right, fast = LedgerPacer(db, clock), LedgerPacer(db, guarded)
    turns = [await one.reserve("x", Pace(1.0)) for one in (fast, right, fast, right)]
    assert turns == [Turn(0), Turn(1), Turn(2), Turn(3)]


async def test_a_ledger_that_cannot_be_asked_leaves_each_process_its_own_turns(
    clock: SteppedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = Database(sqlite_url(tmp_path / "without any table.db"))
    pacer = LedgerPacer(nobody, clock)
    assert await pacer.reserve("x", Pace(3.0)) == Turn(0)
    assert await pacer.reserve("x", Pace(3.0)) == Turn(3)
    await pacer.pause("y", 4.0)
    assert await pacer.reserve("y", Pace(3.0)) == Turn(4)
    await nobody.close()
    assert "are not shared" in caplog.text


@pytest.mark.both_databases
async def test_a_restart_does_not_forget_the_last_launch(db: Database, clock: SteppedClock) -> None:
    launch = able("lambda").rate_limits["launch"]
    await LedgerPacer(db, clock).reserve("lambda/a/launch", launch)
    clock.advance(5)
    waited = await LedgerPacer(db, clock).reserve("lambda/a/launch", launch)
    assert timedelta(seconds=waited.wait_s) == timedelta(seconds=11)
