"""The list that people browse: offers that differ only by region are one row, and each sort key sorts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.market.listing import PLACES_NAMED, OfferRows, listed, unknown_places
from bot.rules.market.ranking import rank
from bot.rules.market.sort_key import SortKey
from bot.rules.policy.policy import Policy
from providers.contract import Offer, Stock
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, OFFERS, job, offer

POLICY = Policy()
ANY = job(gpu=GpuConstraint((), 1, 8))


def rows(offers: list[Offer], sort: SortKey = SortKey.TOTAL) -> OfferRows:
    return listed(offers, ANY, POLICY, CLOUDS, sort)[0]


def ids(found: OfferRows) -> list[list[str]]:
    return [[one.key for one in row] for row in found]


def test_offers_that_differ_only_by_region_are_one_row_with_its_regions() -> None:
    texas = offer("texas", region="Texas, US", country="US", stock=Stock.LOW)
    found = rows([offer("se"), texas, offer("de", region="EU-DE-1", country="DE")])
    (row,) = found
    assert sorted(one.key for one in row) == ["de", "se", "texas"]


def test_rows_are_read_one_by_one_from_both_ends_and_in_slices() -> None:
    found = rows([offer("1"), offer("2", price_usd_h=Decimal(3)), offer("3", region="Texas, US", country="US")])
    assert len(found) == 2
    assert [[one.key for one in row] for row in (found[0], found[-1])] == [["1", "3"], ["2"]]
    assert found[:1] == (found[0],)
    assert found[1:9] == (found[1],)
    assert found[5:] == ()
    with pytest.raises(IndexError):
        found[2]
    assert not rows([])


@pytest.mark.parametrize(
    "change",
    [
        {"price_usd_h": Decimal("0.41")},
        {"reliability": Decimal("0.98")},
        {"machine_id": "7"},
        {"spot": True},
        {"cuda_max": Decimal("12.4")},
        {"storage_usd_h": Decimal("0.01")},
        {"verified": True},
        {"gpu_count": 2},
        {"disk_gb_max": 900},
        {"download_mbps": Decimal(900)},
        {"upload_mbps": Decimal(900)},
        {"pcie_gb_s": Decimal(24)},
        {"cloud": "runpod"},
    ],
)
def test_offers_that_differ_otherwise_are_rows_of_their_own(change: dict[str, Any]) -> None:
    wanted = job(gpu=GpuConstraint((), 1, 8), spot=SpotPolicy.ANY)
    found, _ = listed([offer("1"), offer("2", region="Texas, US", country="US", **change)], wanted, POLICY, CLOUDS)
    assert sorted(ids(found)) == [["1"], ["2"]]


@pytest.mark.parametrize(
    ("sort", "field", "better", "worse"),
    [
        (SortKey.PRICE, "price_usd_h", Decimal("0.2"), Decimal("0.3")),
        (SortKey.RELIABILITY, "reliability", Decimal("0.99"), Decimal("0.5")),
        (SortKey.MEMORY, "memory_gb", Decimal(80), Decimal(24)),
        (SortKey.CUDA, "cuda_max", Decimal("12.8"), Decimal("12.4")),
        (SortKey.AVAILABLE, "available_for_s", 900_000, 90_000),
        (SortKey.NETWORK, "download_mbps", Decimal(900), Decimal(90)),
    ],
)
def test_each_key_puts_its_better_end_first_and_what_is_unknown_last(
    sort: SortKey, field: str, better: Any, worse: Any
) -> None:
    market = [offer("worse", **{field: worse}), offer("better", **{field: better})]
    expected = [["better"], ["worse"]]
    if field in {"reliability", "cuda_max", "available_for_s", "download_mbps"}:
        market.insert(0, offer("unknown", **{field: None}))
        expected.append(["unknown"])
    assert ids(rows(market, sort)) == expected


def test_keys_for_all_gpus_together_and_for_each_of_them() -> None:
    market = [
        offer("one", price_usd_h=Decimal("0.50")),
        offer("four", gpu_count=4, price_usd_h=Decimal("1.60")),
        offer("large", memory_gb=Decimal(80), price_usd_h=Decimal("0.90")),
    ]
    assert ids(rows(market, SortKey.GPU_PRICE)) == [["four"], ["one"], ["large"]]
    assert ids(rows(market, SortKey.ALL_MEMORY)) == [["four"], ["large"], ["one"]]


@settings(max_examples=60, deadline=None)
@given(st.lists(OFFERS, max_size=25, unique_by=lambda one: one.id), st.sampled_from(SortKey))
def test_every_offer_that_fits_is_in_exactly_one_row_and_totals_keep_the_order_of_the_ranking(
    market: list[Offer], sort: SortKey
) -> None:
    policy = Policy(options_shown=500)
    ranked = rank(market, ANY, policy, CLOUDS, proof=WHOLE)
    found, ordered = listed(market, ANY, policy, CLOUDS, sort)
    held = [one.id for row in found for one in row]
    assert sorted(held) == sorted(one.offer.id for one in ranked.options)
    assert ordered.excluded == ranked.excluded
    if sort is SortKey.TOTAL:
        places = {one.offer.id: place for place, one in enumerate(ranked.options)}
        firsts = [places[row[0].id] for row in found]
        assert firsts == sorted(firsts)


def test_a_place_without_an_offer_is_named_with_the_places_that_there_are() -> None:
    market = [offer("1"), offer("2", region="Texas, US", country="US"), offer("3", region="us-east-1", country=None)]
    assert unknown_places(market, ("SE", "Texas"), WHOLE) == ""
    assert unknown_places(market, ("Atlantis", "US"), WHOLE) == (
        "No offer is in “Atlantis” now; there are offers in SE, US, us-east-1."
    )
    assert unknown_places(market, (), WHOLE) == unknown_places([], ("Atlantis",), WHOLE) == ""
    many = [offer(str(number), region=f"R{number:02}", country=None) for number in range(PLACES_NAMED + 3)]
    assert unknown_places(many, ("Atlantis",), WHOLE).endswith(f"R{PLACES_NAMED - 1} and 3 other places.")
