"""When nothing fits: which single limit opens the market, and by how little."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.rules.market.ranking import rank
from bot.rules.market.relaxation import relax, widest
from bot.rules.policy.policy import Policy
from ledger.kernel.job import GpuConstraint, JobRequest, SpotPolicy
from tests.rules.builders import CLOUDS, job, offer

POLICY = Policy()


@pytest.mark.parametrize(
    ("change", "wanted", "instead"),
    [
        ({}, job(max_price_usd_h=Decimal("0.25")), "price=$0.40"),
        ({"price_usd_h": Decimal("0.401")}, job(max_price_usd_h=Decimal("0.25")), "price=$0.41"),
        ({}, job(min_reliability=Decimal("0.999")), "reliability=0.99"),
        ({"reliability": None}, job(min_reliability=Decimal("0.999")), "reliability=0"),
        ({}, job(regions=("US",)), "region=SE"),
        ({}, job(candidates=("runpod",)), "clouds=vast"),
        ({"spot": True}, job(), "spot=yes"),
        ({}, job(spot=SpotPolicy.YES), "spot=no"),
        ({}, job(gpu=GpuConstraint(("A10",))), "gpu=RTX4090"),
        ({}, job(gpu=GpuConstraint(memory_gb_min=Decimal(40))), "memory=24GB"),
        ({}, job(gpu=GpuConstraint(memory_gb_max=Decimal(16))), "memory=24GB"),
        ({"gpu_count": 4}, job(), "count=4"),
        ({"gpu_count": 1}, job(gpu=GpuConstraint(("RTX4090",), 2, 2)), "count=1"),
    ],
)
def test_the_one_limit_that_is_in_the_way_is_named_with_the_least_step(
    change: dict[str, Any], wanted: JobRequest, instead: str
) -> None:
    market = [offer(**change), offer("2", **change)]
    assert rank(market, wanted, POLICY, CLOUDS).options == ()
    (found,) = relax(market, wanted, POLICY, CLOUDS)
    assert (found.instead, found.opens) == (instead, 2)
    assert found.sentence.startswith(f"With {instead}")
    assert "vast:1" in found.sentence


def test_a_budget_says_how_much_more_is_needed_and_then_it_answers() -> None:
    market = [offer(), offer("dear", price_usd_h=Decimal(4))]
    (found,) = relax(market, job(budget_cap_usd=Decimal(1)), POLICY, CLOUDS)
    needed = Decimal(found.instead.removeprefix("max=$"))
    assert f"${needed - 1} more, 1 offer fits" in found.sentence
    assert rank(market, job(budget_cap_usd=needed), POLICY, CLOUDS).answered == 1
    assert rank(market, job(budget_cap_usd=needed - Decimal("0.01")), POLICY, CLOUDS).answered == 0


def test_two_limits_in_the_way_are_nobodys_single_fault_and_several_ways_stand_by_their_total() -> None:
    assert relax([offer()], job(regions=("US",), max_price_usd_h=Decimal("0.1")), POLICY, CLOUDS) == ()
    both = [offer(price_usd_h=Decimal(2)), offer("us", region="US", country="US", price_usd_h=Decimal(9))]
    found = relax(both, job(regions=("US",), max_price_usd_h=Decimal(5)), POLICY, CLOUDS)
    assert [one.instead for one in found] == ["region=SE", "price=$9.00"]
    assert found[0].expected_usd < found[1].expected_usd


def test_limits_that_are_wide_open_already_are_not_named() -> None:
    open_job = job(gpu=GpuConstraint((), 1, POLICY.max_gpus), spot=SpotPolicy.ANY, max_price_usd_h=Decimal("0.1"))
    assert [one.word for one in relax([offer()], open_job, POLICY, CLOUDS)] == ["price"]


def test_the_clouds_are_asked_for_everything_that_a_limit_could_open() -> None:
    wide = widest(job(candidates=("vast",), offer_id="vast:1"), POLICY)
    assert (wide.gpu, wide.spot, wide.candidates) == (GpuConstraint((), 1, POLICY.max_gpus), SpotPolicy.ANY, ())
