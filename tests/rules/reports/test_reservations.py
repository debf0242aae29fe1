"""Reservations: said for steady use that one would make cheaper, by days, with the age of the price."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.reports.reservations import (
    DAYS,
    RESERVATIONS,
    Reservation,
    Used,
    advice,
    first_working_day,
)
from providers.gpus.table import GPUS

END = datetime(2026, 4, 1, tzinfo=UTC)
BEGIN = END - timedelta(days=DAYS)
TODAY = date(2026, 4, 1)
PRICES = (Reservation("Seller", "H100-SXM", Decimal("2.50"), date(2026, 3, 1), "a page"),)


def used(days: float, *, price: str = "4", count: int = 1, gpu: str = "H100-SXM", skip: float = 0) -> Used:
    begin = BEGIN + timedelta(days=skip)
    return Used("lambda", gpu, count, Decimal(price), begin, begin + timedelta(days=days))


def test_steady_use_of_one_gpu_names_what_a_reservation_would_have_saved() -> None:
    # 720 hours at $4 are $2,880; reserved they are $1,800.
    (said,) = advice([used(30)], END, TODAY, PRICES)
    assert said == (
        "H100-SXM at lambda: 720 GPU-hours in 30 days cost $2,880.00. 1 reserved GPU, at Seller from $2.50/h each, "
        "would have saved about $1,080.00 (public price of 2026-03-01)."
    )


def test_as_many_gpus_are_named_as_save_the_most() -> None:
    eight = used(30, price="32", count=8)
    two_days = used(2, price="32", count=8)
    (said,) = advice([eight, two_days], END, TODAY, PRICES)
    assert "8 reserved GPUs" in said
    assert "saved about $8,640.00" in said


@pytest.mark.parametrize(("days", "is_said"), [(20, False), (20.4, False), (21, True)])
def test_a_saving_below_a_tenth_is_not_said(days: float, is_said: bool) -> None:
    # It costs $1,800 whatever is used; 20 days of use are $1,920, 21 days $2,016.
    assert bool(advice([used(days)], END, TODAY, PRICES)) is is_said


def test_use_on_a_few_days_cannot_be_replaced_by_one_gpu() -> None:
    burst = [used(3, price="40", count=10)]
    assert advice(burst, END, TODAY, PRICES) == ()


def test_stopped_time_is_no_use() -> None:
    one = used(30)
    stops = ((BEGIN + timedelta(days=5), True), (BEGIN + timedelta(days=25), False), (END, True), (END, True))
    whole = Used(one.cloud, one.gpu, one.count, one.price_usd_h, one.since, one.until, stops)
    assert advice([whole], END, TODAY, PRICES) == ()
    again = ((BEGIN + timedelta(days=1), False), (BEGIN + timedelta(days=2), False))
    assert advice([Used(one.cloud, one.gpu, 1, Decimal(4), one.since, one.until, again)], END, TODAY, PRICES)


def test_a_gpu_without_a_public_price_and_no_use_say_nothing() -> None:
    assert advice([used(30, gpu="RTX4090")], END, TODAY, PRICES) == ()
    assert advice([used(0)], END, TODAY, PRICES) == ()
    assert advice([], END, TODAY, PRICES) == ()


def test_the_greatest_saving_comes_first_and_the_cheapest_seller_counts() -> None:
    prices = (*PRICES, Reservation("Other", "H100-SXM", Decimal("2.40"), date(2026, 3, 1), "a page"))
    other = Used("runpod", "H100-SXM", 2, Decimal(9), BEGIN, END)
    first, second = advice([used(30), other], END, TODAY, prices)
    assert first.startswith("H100-SXM at runpod")
    assert second.startswith("H100-SXM at lambda")
    assert "at Other from $2.40/h" in second


@pytest.mark.parametrize(("age", "old"), [(180, False), (181, True)])
def test_an_old_price_is_named_as_such(age: int, old: bool) -> None:
    (said,) = advice([used(30)], END, date(2026, 3, 1) + timedelta(days=age), PRICES)
    assert said.endswith("The price is older than 180 days.") is old


@pytest.mark.parametrize(
    ("day", "first"),
    [
        ("2026-04-17", "2026-04-01"),
        ("2026-08-01", "2026-08-03"),
        ("2026-11-30", "2026-11-02"),
        ("2026-03-05", "2026-03-02"),
    ],
)
def test_the_first_working_day_is_no_weekend(day: str, first: str) -> None:
    assert first_working_day(date.fromisoformat(day)) == date.fromisoformat(first)


def test_every_public_price_has_its_source_and_is_for_a_known_gpu() -> None:
    assert len({(one.seller, one.gpu) for one in RESERVATIONS}) == len(RESERVATIONS)
    for one in RESERVATIONS:
        assert one.gpu in GPUS
        assert one.source.startswith("https://")
        assert one.price_usd_h > 0
