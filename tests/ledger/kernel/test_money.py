"""Rounding of money: each function against the plain `Decimal` expression that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.kernel import money

#: Numbers that lie half way between two units are drawn as often as all others.
UNITS = st.sampled_from([1, 3, 7])
HALVES = st.builds(lambda n, digits: Decimal(10 * n + 5).scaleb(-digits), st.integers(-(10**12), 10**12), UNITS)
NUMBERS = HALVES | st.decimals(min_value=-(10**9), max_value=10**9, places=12)
AMOUNTS = NUMBERS.map(abs)

SAME: list[tuple[Callable[[Decimal], Decimal], str, str]] = [
    (money.amount, "0.000001", ROUND_HALF_UP),
    (money.amount_even, "0.000001", ROUND_HALF_EVEN),
    (money.cap, "0.000001", ROUND_DOWN),
    (money.worst, "0.000001", ROUND_UP),
    (money.cents, "0.01", ROUND_HALF_UP),
    (money.cents_even, "0.01", ROUND_HALF_EVEN),
    (money.cents_up, "0.01", ROUND_UP),
    (money.dollars, "1", ROUND_HALF_UP),
    (lambda n: money.half_up(n, 1), "0.1", ROUND_HALF_UP),
    (lambda n: money.half_up(n, 6), "0.000001", ROUND_HALF_UP),
    (lambda n: money.down(n, 4), "0.0001", ROUND_DOWN),
]


@given(number=NUMBERS)
def test_each_direction_and_unit(number: Decimal) -> None:
    for rounded, unit, direction in SAME:
        # The text, too: zeros at the end are part of what is stored in JSON and shown.
        assert str(rounded(number)) == str(number.quantize(Decimal(unit), rounding=direction))


@given(number=AMOUNTS)
def test_a_worst_case_is_rounded_up_in_both_senses(number: Decimal) -> None:
    assert money.worst(number) == number.quantize(money.MICRO_USD, rounding=ROUND_CEILING)
    assert money.cap(number) <= money.amount(number) <= money.worst(number)


@given(price=AMOUNTS)
def test_a_price_is_never_kept_lower_than_it_is(price: Decimal) -> None:
    kept = money.rate(price)
    assert price <= kept < price + money.MICRO_USD
    assert money.rate(kept) == kept == Decimal(money.to_micro(kept)) / 1_000_000 or price > money.MOST_USD_H


@pytest.mark.parametrize(
    ("price", "whole"),
    [
        ("0.36", "0.36"),
        ("0.3593", "0.3593"),
        ("0.359300", "0.359300"),
        ("0.3593004", "0.359301"),
        ("0.000000001", "0.000001"),
        ("12", "12"),
        ("1E+3", "1E+3"),
        ("1000000.0000001", "1000000.0000001"),
        ("1E+30", "1E+30"),
        ("Infinity", "Infinity"),
    ],
)
def test_a_price_is_kept_in_whole_micro_dollars_and_never_too_low(price: str, whole: str) -> None:
    assert str(money.rate(Decimal(price))) == whole


def test_a_price_that_is_no_number_is_left_to_the_other_rules() -> None:
    assert money.rate(Decimal("NaN")).is_nan()


@given(st.lists(st.decimals(0, 1000, places=6), max_size=8))
def test_rounded_parts_add_up_to_their_rounded_total(parts: list[Decimal]) -> None:
    rounded = money.cents_of(parts)
    assert sum(rounded, Decimal(0)) == money.cents(sum(parts, Decimal(0)))
    assert all(abs(one - exact) < money.CENT for one, exact in zip(rounded, parts, strict=True))


def test_the_largest_remainder_takes_the_cent() -> None:
    parts = [Decimal("0.333333"), Decimal("0.333334"), Decimal("0.333333")]
    assert money.cents_of(parts) == [Decimal("0.33"), Decimal("0.34"), Decimal("0.33")]
