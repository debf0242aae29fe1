"""Turns at a cloud, as replicas take them from the ledger."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from ledger.core.rate_limits import HORIZON, TurnsUnavailable, pause_until, take
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


async def test_a_pause_is_never_shortened_and_a_wrong_clock_is_not_believed(db: Database) -> None:
    await pause_until(db, "new", START + 5 * SECOND)
    await pause_until(db, "new", START + 2 * SECOND)
    assert await turn(db, "new") == (5, True)
    await turn(db, "old")
    await pause_until(db, "old", START + 40 * SECOND)
    assert await turn(db, "old") == (40, True)
    await pause_until(db, "far", START + HORIZON)
    assert await turn(db, "far", patience_s=9999) == (HORIZON.total_seconds(), True)
    await pause_until(db, "wrong", START + HORIZON + SECOND)
    assert await turn(db, "wrong", patience_s=9999) == (0, True)


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
        await pause_until(folder, "vast", START)
    await folder.close()
