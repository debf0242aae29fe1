"""What the simulation of a run is said as."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.market.outlook import RunOutlook, chances_said, percent, range_said, speed_said

FOUND = RunOutlook(Decimal(4), Decimal("8.5"), Decimal("10.2"), Decimal("21.75"), Decimal("0.912"))


def test_the_range_is_said_as_hours_and_dollars() -> None:
    assert range_said(FOUND) == "Four of five runs take 4 h to 8 h 30 min and cost $10.20 to $21.75."


def test_chances_are_said_for_what_was_named() -> None:
    assert chances_said(FOUND) == ""
    assert chances_said(replace(FOUND, done=Decimal("0.634"))) == "Chances: 63% done by the goal."
    both = replace(FOUND, done=Decimal("0.634"), within=Decimal("0.9951"))
    assert chances_said(both) == "Chances: 63% done by the goal, above 99% within the budget."


def test_goodput_stands_beside_the_use_of_the_gpus() -> None:
    assert speed_said(FOUND) == "The run advances in 91% of its time (goodput)."
    assert speed_said(replace(FOUND, utilisation=Decimal("0.38"))).endswith(
        "(goodput), which uses 38% of the GPUs' peak rate."
    )


@pytest.mark.parametrize(
    ("chance", "said"), [("0", "below 1%"), ("0.01", "1%"), ("0.5", "50%"), ("0.99", "99%"), ("1", "above 99%")]
)
def test_no_forecast_is_sure(chance: str, said: str) -> None:
    assert percent(Decimal(chance)) == said
