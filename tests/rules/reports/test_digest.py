"""Digests: due once a day in people's own zone, windows across changes of clocks, the forecast and what is unusual."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.reports.digest import anomalies, day_before, days, due_day, forecast, problems, saved, week_before

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("now", "zone", "day"),
    [
        (datetime(2026, 3, 2, 8, 59, tzinfo=UTC), "UTC", date(2026, 3, 1)),
        (datetime(2026, 3, 2, 9, 0, tzinfo=UTC), "UTC", date(2026, 3, 2)),
        (datetime(2026, 3, 2, 8, 0, tzinfo=UTC), BERLIN, date(2026, 3, 2)),
        (datetime(2026, 7, 2, 7, 0, tzinfo=UTC), BERLIN, date(2026, 7, 2)),
        (datetime(2026, 3, 2, 1, 0, tzinfo=UTC), "America/Los_Angeles", date(2026, 3, 1)),
    ],
)
def test_a_digest_is_due_at_the_local_time(now: datetime, zone: str, day: date) -> None:
    assert due_day(now, "09:00", zone) == day
    assert due_day(now, "", zone) is None


def test_a_day_has_the_hours_that_its_clock_gives_it() -> None:
    spring = day_before(date(2026, 3, 30), BERLIN)  # Clocks go forward in the night to the 29th.
    assert (spring.first, spring.last) == (date(2026, 3, 29), date(2026, 3, 29))
    assert spring.until - spring.since == timedelta(hours=23)
    assert spring.month_since == datetime(2026, 2, 28, 23, tzinfo=UTC)
    assert spring.month_until == datetime(2026, 3, 31, 22, tzinfo=UTC)
    week = week_before(date(2026, 3, 30), BERLIN)
    assert (week.first, week.until) == (date(2026, 3, 23), spring.until)
    lengths = [until - since for _, since, until in days(week.first, week.last, BERLIN)]
    assert lengths == [timedelta(hours=24)] * 6 + [timedelta(hours=23)]


def test_the_first_of_a_month_speaks_of_the_month_before() -> None:
    window = day_before(date(2026, 3, 1), "UTC")
    assert (window.month_since, window.month_until) == (
        datetime(2026, 2, 1, tzinfo=UTC),
        datetime(2026, 3, 1, tzinfo=UTC),
    )
    assert forecast(Decimal(50), [Decimal(5)] * 7, window) == Decimal(50)  # No day is left.


def test_the_forecast_goes_on_with_the_last_days() -> None:
    window = day_before(date(2026, 3, 22), "UTC")
    assert forecast(Decimal(100), [Decimal(90)] * 3 + [Decimal(10)] * 7, window) == Decimal(200)
    assert forecast(Decimal(100), [Decimal(10)] * 6, window) is None


def test_what_costs_far_more_than_usual_is_named_the_greatest_first() -> None:
    usual = {"vast": Decimal(100), "lambda": Decimal(10)}
    now = {"vast": Decimal(31), "lambda": Decimal("3.5"), "runpod": Decimal(80), "": Decimal(4)}
    assert anomalies("cloud", now, usual, 10) == [
        "cloud runpod: $80.00, usually nothing",
        "cloud vast: $31.00, usually $10.00 a day",
    ]
    assert anomalies("cloud", {"": Decimal(6)}, usual, 10) == ["cloud none: $6.00, usually nothing"]
    assert anomalies("cloud", now, usual, 2) == []  # Nobody knows yet what is usual.


def test_wrong_settings_are_named() -> None:
    assert [*problems("09:00", BERLIN, "monday"), *problems("", "UTC", "")] == []
    assert "digest_at" in next(problems("9 am", "UTC", ""))
    assert "digest_timezone" in next(problems("09:00", "Mars/Olympus", ""))
    assert "digest_timezone" in next(problems("09:00", "../etc/passwd", ""))
    assert "digest_weekly" in next(problems("09:00", "UTC", "someday"))


def test_what_a_machine_saved_while_it_stood_still() -> None:
    noon, hour = datetime(2026, 3, 2, 12, tzinfo=UTC), timedelta(hours=1)
    until = noon + 10 * hour
    stops = [(noon - hour, True), (noon + hour, False), (noon + 3 * hour, True), (noon + 5 * hour, False)]
    assert saved(Decimal(2), stops, noon, until) == Decimal(6)
    assert saved(Decimal(2), [(noon + 8 * hour, True)], noon, until) == Decimal(4)
    assert saved(Decimal(2), [(noon + 8 * hour, False)], noon, until) == 0  # It was never seen to stop.
    assert saved(Decimal(2), [(until + hour, True)], noon, until) == 0
    assert saved(Decimal(2), (), noon, until) == 0
