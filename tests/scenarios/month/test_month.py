"""Thirty days of everything: five clouds, forty sessions a day, faults and restarts; `--soak` runs it at full size.

The seed of a run is in its table, and `MONTH_SEED` plays it again; `MONTH_DAYS` makes it shorter.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.rules.billing.true_up import SETTLED
from tests.scenarios.month.run import Size, play
from tests.support.tables import TABLE

SEED = int(os.environ.get("MONTH_SEED", "7"))
DAYS = float(os.environ.get("MONTH_DAYS", "30"))
#: What is lived through on PostgreSQL, and with the messages in the Slack stand-in: both cost more by the day.
ELSEWHERE_DAYS = min(DAYS, 2.0)
#: A few hours with four times the faults, and then the days until bills are settled: cheap enough for every run.
FEW_HOURS = Size(days=0.15, sessions_a_day=60, clouds=("vast", "lambda"), hours_max=1, faults=4)
SMALL = replace(FEW_HOURS, drain=timedelta(hours=3) + SETTLED)


@pytest.mark.slow
async def test_a_morning_of_faults_keeps_what_is_promised(
    sqlite_db_url: str, record_property: Callable[[str, object], None]
) -> None:
    verdict, table = await play(sqlite_db_url, SEED, SMALL)
    record_property(TABLE, "\n".join([table, *verdict.notes]))
    assert not verdict.broken, "\n".join([table, *verdict.broken, *verdict.notes])


@pytest.mark.timeout(3600)
@pytest.mark.soak
async def test_a_month_of_faults_keeps_what_is_promised(
    sqlite_db_url: str, record_property: Callable[[str, object], None]
) -> None:
    verdict, table = await play(sqlite_db_url, SEED, Size(days=DAYS))
    record_property(TABLE, "\n".join([table, *verdict.notes]))
    assert not verdict.broken, "\n".join([table, *verdict.broken, *verdict.notes])


@pytest.mark.timeout(1200)
@pytest.mark.soak
async def test_days_of_faults_on_postgresql(pg_db_url: str, record_property: Callable[[str, object], None]) -> None:
    verdict, table = await play(pg_db_url, SEED, Size(days=ELSEWHERE_DAYS))
    record_property(TABLE, "\n".join([table, *verdict.notes]))
    assert not verdict.broken, "\n".join([table, *verdict.broken, *verdict.notes])


@pytest.mark.timeout(1200)
@pytest.mark.soak
async def test_days_of_faults_read_in_slack(sqlite_db_url: str, record_property: Callable[[str, object], None]) -> None:
    verdict, table = await play(sqlite_db_url, SEED, Size(days=ELSEWHERE_DAYS, slack=True))
    record_property(TABLE, "\n".join([table, *verdict.notes]))
    assert not verdict.broken, "\n".join([table, *verdict.broken, *verdict.notes])
