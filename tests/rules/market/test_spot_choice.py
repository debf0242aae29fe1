"""Spot beside on-demand: what it saves, the chance to lose the machine, and nothing where only one kind fits."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from providers.contract import Offer
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, job, offer

ANY = job("6", spot=SpotPolicy.ANY)


def why(spot_usd_h: str, on_demand_usd_h: str, *others: Offer, wanted: SpotPolicy = SpotPolicy.ANY) -> str:
    market = [
        offer("1", spot=True, price_usd_h=Decimal(spot_usd_h), reliability=Decimal("0.95")),
        offer("2", price_usd_h=Decimal(on_demand_usd_h)),
        *others,
    ]
    found = rank(market, replace(ANY, spot=wanted), Policy(), CLOUDS, proof=WHOLE).options
    assert not any("Spot saves" in one.why for one in found[1:])
    return found[0].why


def test_what_spot_saves_is_said_once_with_its_risk() -> None:
    # 20 % within a day are 5 % within 6 hours.
    assert "Spot saves about $5.8" in why("1", "2")
    assert "with a 5% chance to lose the machine." in why("1", "2")


@pytest.mark.parametrize(("spot", "on_demand"), [("2", "1"), ("2", "1.99")])
def test_where_spot_saves_nothing_that_is_said(spot: str, on_demand: str) -> None:
    said = why(spot, on_demand)
    assert "Spot saves nothing now: on-demand costs about $" in said
    assert "and spot comes with a 5% chance to lose the machine." in said


def test_the_same_total_is_said_as_such() -> None:
    kind = offer("1", spot=True, reliability=Decimal(1), price_usd_h=Decimal(1))
    found = rank(
        [kind, replace(kind, key="2", spot=False)], ANY, Policy(spot_interruption=Decimal(0)), CLOUDS, proof=WHOLE
    )
    assert "on-demand costs as much, and spot comes with a chance below 1% to lose the machine." in found.options[0].why


def test_only_one_kind_or_one_that_was_not_asked_for_says_nothing() -> None:
    one = rank([offer("1", spot=True)], ANY, Policy(), CLOUDS, proof=WHOLE).options[0].why
    assert "Spot saves" not in one
    assert "Spot saves" not in why("1", "2", wanted=SpotPolicy.NO)


def test_a_free_cloud_is_not_what_spot_is_compared_with() -> None:
    free = offer("3", cloud="kaggle", price_usd_h=Decimal(0))
    assert "Spot saves about" in why("1", "2", free)
