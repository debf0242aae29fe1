"""Turns at a cloud, as replicas take them from the ledger."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from ledger.core.rate_limits import TurnsUnavailable, pause_until, take
from ledger.engine.db import Database
from tests.support.clock import START
from tests.support.databases import sqlite_url

SECOND = timedelta(seconds=1)


async def turn(
    db: Database, name: str = "vast", *, after_s: float = 0, ahead_s: float = 0, patience_s: float = 60
) -> tuple[float, bool]:
    """The next of turns that are ten seconds apart."""
    now, every = START + after_s * SECOND, 10 * SECOND
    wait, is_taken = await take(db, name, now, every=every, ahead=ahead_s * SECOND, patience=patience_s * SECOND)
    return wait.total_seconds(), is_taken


async def test_turns_are_apart_and_some_may_come_ahead(db: Database) -> None:
    assert [await turn(db) for _ in range(3)] == [(0, True), (10, True), (20, True)]
    assert await turn(db, "lambda") == (0, True)
    assert await turn(db, after_s=29.5) == (0.5, True)
    # Nothing saves up while nobody calls.
    assert [await turn(db, after_s=1000) for _ in range(2)] == [(0, True), (10, True)]
    assert [await turn(db, "kaggle", ahead_s=20) for _ in range(5)] == [(wait, True) for wait in (0, 0, 0, 10, 20)]


async def test_a_turn_that_is_too_far_away_is_left_to_others(db: Database) -> None:
    assert [await turn(db, patience_s=10) for _ in range(4)] == [(0, True), (10, True), (20, False), (20, False)]
    assert await turn(db, patience_s=20) == (20, True)
    assert await turn(db, patience_s=0, after_s=30) == (0, True)


async def test_a_pause_is_never_shortened(db: Database) -> None:
    await pause_until(db, "new", START, START + 5 * SECOND)
    await pause_until(db, "new", START, START + 2 * SECOND)
    assert await turn(db, "new") == (5, True)
    await turn(db, "old")
    await pause_until(db, "old", START, START + 40 * SECOND)
    assert await turn(db, "old") == (40, True)


@pytest.mark.both_databases
@pytest.mark.parametrize("step_s", [-7, -50, -600, -90 * 86400])
async def test_a_clock_that_steps_back_refuses_nobody_and_keeps_the_turns_apart(db: Database, step_s: float) -> None:
    assert [await turn(db) for _ in range(2)] == [(0, True), (10, True)]
    # A caller that knows only that time went back waits for what was left, and never longer.
    assert await turn(db, after_s=step_s, patience_s=20) == (20, True)
    assert await turn(db, after_s=step_s, patience_s=20) == (30, False)
    assert await turn(db, after_s=step_s + 10, patience_s=20) == (20, True)
    await pause_until(db, "vast", START, START + 300 * SECOND)
    assert await turn(db, after_s=step_s, patience_s=400) == (300, True)
    await pause_until(db, "vast", START + step_s * SECOND, START + (step_s + 2) * SECOND)
    assert await turn(db, after_s=step_s, patience_s=400) == (310, True)


async def test_many_at_once_get_turns_of_their_own(db: Database, db_url: str) -> None:
    other = Database(db_url)
    turns = await asyncio.gather(*(turn(one, patience_s=99) for one in (db, other) * 5))
    await other.close()
    assert sorted(turns) == [(wait, True) for wait in range(0, 100, 10)]


async def test_a_ledger_that_cannot_be_asked_is_said(tmp_path: Path) -> None:
    folder = Database(sqlite_url(tmp_path))
    with pytest.raises(TurnsUnavailable, match="OperationalError"):
        await turn(folder)
    with pytest.raises(TurnsUnavailable, match="OperationalError"):
        await pause_until(folder, "vast", START, START)
    await folder.close()
