"""Whether an account can pay: an hour of credit, and its own limit per hour."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.market.affordability import cannot_pay
from providers.contract import Balance
from tests.rules.builders import offer


@pytest.mark.parametrize(
    ("balance", "says"),
    [
        (None, None),
        (Balance(Decimal(2)), None),
        (Balance(Decimal("1.99")), "$1.99 left"),
        (Balance(Decimal(-3)), "less than one hour"),
        (Balance(Decimal(50), Decimal(80), Decimal(78)), None),
        (Balance(Decimal(50), Decimal(80), Decimal("78.01")), "its own limit is $80.00/h"),
        (Balance(Decimal(50), None, Decimal(500)), None),
    ],
)
def test_an_hour_must_be_paid_and_the_limit_kept(balance: Balance | None, says: str | None) -> None:
    told = cannot_pay(offer(price_usd_h=Decimal(2)), balance)
    assert told is None if says is None else told is not None and says in told


@pytest.mark.parametrize("price", [None, Decimal("NaN")])
def test_a_price_that_is_none_is_judged_elsewhere(price: Decimal | None) -> None:
    assert cannot_pay(offer(price_usd_h=price), Balance(Decimal(0))) is None
