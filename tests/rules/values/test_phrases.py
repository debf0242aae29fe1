"""How amounts, rates and times read, and what amounts people may type."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from bot.rules.values import phrases


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("0", "$0.00"),
        ("0.001", "<$0.01"),
        ("1234.5", "$1,234.50"),
        ("-3", "-$3.00"),
        ("-0.004", "$0.00"),
        ("-0.000001", "$0.00"),
        ("0.005", "$0.01"),
        ("1E+40", "$1,000,000,000,000.00"),
    ],
)
def test_dollars(amount: str, said: str) -> None:
    assert phrases.usd(Decimal(amount)) == said


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("0", "free"),
        ("0.3683", "$0.368/h"),
        ("-0.0004", "$0.000/h"),
        ("12.4", "$12.40/h"),
        ("1234", "$1,234.00/h"),
        ("1E+40", "$1,000,000,000,000.00/h"),
    ],
)
def test_rates(price: str, said: str) -> None:
    assert phrases.rate(Decimal(price)) == said


def test_a_rate_after_what_costs_it() -> None:
    assert phrases.at_rate(Decimal("0.3683")) == "at $0.368/h"
    assert phrases.at_rate(Decimal("0.000000")) == "for free"


@pytest.mark.parametrize(
    ("share", "said"),
    [("0.95", "95.0%"), ("0.9945", "99.4%"), ("0.9999", "99.9%"), ("1", "100.0%"), ("1E-9", "0.0%")],
)
def test_a_reliability_has_one_decimal_and_is_never_overstated(share: str, said: str) -> None:
    assert phrases.reliability(Decimal(share)) == said


def test_a_place_has_one_form() -> None:
    assert phrases.place_name("Poland, PL", "PL") == phrases.place_name("Warsaw, Masovia, PL", "PL") == "PL"
    assert phrases.place_name("US-TX-3", None) == "US-TX-3"
    assert phrases.place_name("any", None) == "any region"
    assert phrases.place_name("", None) == "unknown"


def test_two_rates_that_differ_never_look_the_same() -> None:
    assert phrases.rates(Decimal("0.44"), Decimal("0.4")) == ("$0.440/h", "$0.400/h")
    assert phrases.rates(Decimal("0.440001"), Decimal("0.44")) == ("$0.440001/h", "$0.440000/h")
    assert phrases.rates(Decimal("0.44"), Decimal("0.44")) == ("$0.440/h", "$0.440/h")


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("1", "1 hour"),
        ("6.000000", "6 hours"),
        ("1.5", "1.5 hours"),
        ("0.75", "45 minutes"),
        ("0.016667", "1 minute"),
        ("10000", "10,000 hours"),
        ("9E+40", "1,000,000,000,000 hours"),
    ],
)
def test_times(amount: str, said: str) -> None:
    assert phrases.hours(Decimal(amount)) == said


@pytest.mark.parametrize(
    ("amount", "exact", "about"),
    [
        ("6.000000", "6 h", "6 h"),
        ("1.666667", "1 h 40 min", "1 h 40 min"),
        ("9.999", "10 h", "10 h"),
        ("12.25", "12 h 15 min", "12 h"),
        ("19.11", "19 h 7 min", "19 h"),
        ("0.75", "45 min", "45 min"),
        ("10000", "10,000 h", "10,000 h"),
        ("0", "0 min", "0 min"),
    ],
)
def test_short_times(amount: str, exact: str, about: str) -> None:
    assert phrases.brief(Decimal(amount)) == exact
    assert phrases.about_hours(Decimal(amount)) == about


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (-1, "0 s"), (41, "41 s"), (60, "1 min 0 s"), (72, "1 min 12 s"), (3600, "1 h"), (3725, "1 h 2 min")],
)
def test_seconds_in_words(seconds: int, said: str) -> None:
    assert phrases.seconds_in_words(seconds) == said


def test_whole_numbers_keep_their_zeros() -> None:
    assert phrases.plural(20, "offer") == "20 offers"
    assert phrases.plural(1000, "offer") == "1,000 offers"


@pytest.mark.parametrize(
    ("typed", "amount"),
    [
        ("123.45", "123.45"),
        ("$1,234", "1234"),
        (" 123.45 USD ", "123.45"),
        ("us$5", "5"),
        ("12 dollars", "12"),
        ("1,23", None),
        ("-5", None),
        ("nan", None),
        ("1e9", None),
        ("", None),
        ("12 34", None),
        ("1,000,000,000,000,000", None),
    ],
)
def test_typed_amounts(typed: str, amount: str | None) -> None:
    assert phrases.read_amount(typed) == (None if amount is None else Decimal(amount))


@pytest.mark.parametrize(("amount", "said"), [("6", "6h"), ("1.5", "90m"), ("6.00", "6h"), ("0.25", "15m")])
def test_a_time_as_people_type_it(amount: str, said: str) -> None:
    assert phrases.short_hours(Decimal(amount)) == said


def test_a_kept_disk_is_said_with_its_price_and_its_end() -> None:
    until = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)
    assert phrases.retained_disk(Decimal("0.01"), until) == (
        "Its disk is kept for $0.010/h ($7.30 a month) and deleted 2026-03-09 12:00 UTC."
    )


def test_what_a_silent_cloud_can_have_charged() -> None:
    said = phrases.unreconciled(Decimal("1.2"), Decimal("1.9"))
    assert said == "Unreconciled: its cloud does not say; between $1.20 and $1.90."
    same = phrases.unreconciled(Decimal("1.899"), Decimal("1.901"))
    assert same == "Unreconciled: its cloud does not say; by the clock $1.90."


def test_a_total_says_what_it_is_made_of() -> None:
    parts = [("compute", Decimal("0.70")), ("start-up", Decimal("0.004")), ("retries", Decimal("0.07"))]
    assert phrases.sum_of(parts) == "$0.70 compute + $0.07 retries"
    assert phrases.sum_of(parts[:2]) == ""
