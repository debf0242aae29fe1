"""The end of a volume: written, or after days of notices; its amount alone never decides."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.sessions.volume_end import (
    DAY,
    LEAST_NOTICE,
    LONGEST,
    VolumeEnd,
    may_delete,
    notices,
    unpaid_time,
    volume_end,
)
from tests.support.clock import START

HOUR = timedelta(hours=1)
WRITTEN = START + 30 * DAY


def test_an_amount_that_pays_until_the_written_end_changes_nothing() -> None:
    assert volume_end(WRITTEN, WRITTEN, None, 7, START) == VolumeEnd(WRITTEN)
    assert volume_end(WRITTEN, WRITTEN, START - DAY, 7, START) == VolumeEnd(WRITTEN)


@pytest.mark.parametrize(
    ("paid", "grace_at", "begins", "deadline"),
    [
        # It still pays for the days of notices, which begin then.
        (START + 10 * DAY, None, START + 3 * DAY, START + 10 * DAY),
        (START + 10 * DAY, START + 5 * DAY, START + 3 * DAY, START + 10 * DAY),
        # It pays for three hours: they begin now, and are not shorter for that.
        (START + 3 * HOUR, None, START, START + 7 * DAY),
        (START - DAY, None, START, START + 7 * DAY),
        # Once begun they go on.
        (START - DAY, START - 2 * DAY, START - 2 * DAY, START + 5 * DAY),
        # The written end comes first.
        (START + 25 * DAY, None, START + 18 * DAY, START + 25 * DAY),
    ],
)
def test_an_amount_that_is_too_small_begins_the_days_of_notices(
    paid: object, grace_at: object, begins: object, deadline: object
) -> None:
    assert volume_end(WRITTEN, paid, grace_at, 7, START) == VolumeEnd(deadline, begins)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("paid", "unpaid", "deadline"),
    [
        (START + 3 * HOUR, 48 * HOUR, START + 51 * HOUR),
        (START + 3 * HOUR, HOUR, START + DAY),
        (START - 9 * DAY, 48 * HOUR, START + DAY),
        (START + 3 * HOUR, 30 * DAY, START + 7 * DAY),
        # What the amount pays is no excess.
        (START + 10 * DAY, HOUR, START + 10 * DAY),
    ],
)
def test_the_days_of_notices_become_fewer_at_a_higher_rate(
    paid: datetime, unpaid: timedelta, deadline: datetime
) -> None:
    assert volume_end(WRITTEN, paid, None, 7, START, unpaid).deadline == deadline


def test_the_time_that_is_not_paid_follows_from_the_rate() -> None:
    assert unpaid_time(Decimal(50), Decimal(2)) == 25 * HOUR
    assert unpaid_time(Decimal(50), Decimal(0)) == LONGEST


def test_nothing_is_kept_beyond_the_written_end() -> None:
    written = START + 2 * DAY
    assert volume_end(written, START + HOUR, None, 7, START) == VolumeEnd(written, START)


def test_people_are_told_a_day_before_on_each_day_of_notices_and_at_half_of_a_short_life() -> None:
    assert notices((3600,), START, WRITTEN, None) == (WRITTEN - DAY, WRITTEN - HOUR)
    end = START + 7 * DAY
    assert set(notices((), START - 9 * DAY, end, START)) == {START + n * DAY for n in range(7)}
    assert notices((), START, START + 2 * HOUR, None) == (START + HOUR,)


def test_a_deletion_comes_after_a_notice_with_time_to_read_it() -> None:
    assert not may_delete(START, None, START)
    assert not may_delete(START, START - HOUR, START - timedelta(seconds=1))
    assert may_delete(START, START - HOUR, START)
    late = START + DAY
    assert not may_delete(START, late, late + LEAST_NOTICE - timedelta(seconds=1))
    assert may_delete(START, late, late + LEAST_NOTICE)
