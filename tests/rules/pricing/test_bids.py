"""What is bid for a spot offer: a margin above the lowest accepted bid, covered by the approval."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.rules.pricing.bids import inside, with_margin
from providers.contract import Offer
from tests.rules.builders import offer

STORAGE = Decimal("0.01")


def spot(least: str = "0.20", **changes: Any) -> Offer:
    bid = Decimal(least)
    plain = {"spot": True, "min_bid_usd_h": bid, "gpu_usd_h": bid, "price_usd_h": bid + STORAGE}
    return offer(**{**plain, "storage_usd_h": STORAGE, **changes})


def test_the_price_is_that_of_the_bid_with_its_margin() -> None:
    priced = with_margin(spot())
    assert (priced.gpu_usd_h, priced.price_usd_h) == (Decimal("0.21"), Decimal("0.22"))
    assert priced.min_bid_usd_h == Decimal("0.20")


@pytest.mark.parametrize(
    "untouched",
    [
        offer(min_bid_usd_h=Decimal("0.1")),
        spot(min_bid_usd_h=None),
        spot(min_bid_usd_h=Decimal(0)),
        spot(min_bid_usd_h=Decimal("NaN")),
        spot(price_usd_h=None),
        spot(price_usd_h=Decimal(-1)),
    ],
)
def test_what_has_no_lowest_bid_or_no_price_stays_as_it_is(untouched: Offer) -> None:
    # NaN equals nothing, itself included, so the text is compared.
    assert repr(with_margin(untouched)) == repr(untouched)


@pytest.mark.parametrize(
    ("cap", "bid", "price"),
    [
        ("0.22", "0.21", "0.22"),
        ("0.215", "0.205", "0.215"),
        ("0.21", "0.20", "0.21"),
        # Below the lowest accepted bid nothing is bid: the price stays above the cap, so that people are asked again.
        ("0.20", "0.20", "0.21"),
    ],
)
def test_the_margin_gives_way_to_the_approved_price(cap: str, bid: str, price: str) -> None:
    lowered = inside(with_margin(spot()), Decimal(cap))
    assert (lowered.gpu_usd_h, lowered.price_usd_h) == (Decimal(bid), Decimal(price))


@example(Decimal("0.001000"), Decimal("1E-9"), Decimal("0.001001"))
@given(
    st.decimals(min_value="0.001", max_value=40, places=6),
    st.decimals(min_value=0, max_value=2, places=9),
    st.decimals(min_value="0.001", max_value=80, places=6),
)
def test_a_bid_is_never_below_the_lowest_and_never_above_the_cap_where_both_can_be(
    least: Decimal, storage: Decimal, cap: Decimal
) -> None:
    raw = spot(str(least), price_usd_h=least + storage, storage_usd_h=storage)
    lowered = inside(with_margin(raw), cap)
    assert lowered.gpu_usd_h is not None
    assert lowered.price_usd_h is not None
    assert lowered.gpu_usd_h >= least
    # A rate is rounded up to whole micro-dollars.
    assert abs(lowered.price_usd_h - lowered.gpu_usd_h - storage) <= Decimal("0.000001")
    if least + storage <= cap:
        assert lowered.price_usd_h <= cap
