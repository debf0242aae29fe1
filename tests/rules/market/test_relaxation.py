"""When nothing fits: which single limit opens the market, and by how little."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.market.ranking import rank
from bot.rules.market.relaxation import relax, widest
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
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
        ({}, job(gpu=GpuConstraint(memory_gb_max=Decimal(16))), "memory=24GB"),
        ({"gpu_count": 4}, job(), "count=4"),
        ({"gpu_count": 1}, job(gpu=GpuConstraint(("RTX4090",), 2, 2)), "count=1"),
    ],
)
def test_the_one_limit_that_is_in_the_way_is_named_with_the_least_step(
    change: dict[str, Any], wanted: JobRequest, instead: str
) -> None:
    market = [offer(**change), offer("2", **change)]
    assert rank(market, wanted, POLICY, CLOUDS, proof=WHOLE).options == ()
    (found,) = relax(market, wanted, POLICY, CLOUDS, WHOLE)
    assert (found.instead, found.opens) == (instead, 2)
    assert found.sentence.startswith(f"With {instead}, ") or found.is_far
    assert f" {instead}" in found.sentence
    assert f"{market[0].gpu_count}x {market[0].gpu} at vast" in found.sentence


def test_a_budget_says_how_much_more_is_needed_and_then_it_answers() -> None:
    market = [offer(), offer("dear", price_usd_h=Decimal(4))]
    (far,) = relax(market, job(budget_cap_usd=Decimal("0.05")), POLICY, CLOUDS, WHOLE)
    assert (far.is_far, far.sentence.startswith(f"The cheapest offer that fits needs {far.instead}: ")) == (True, True)
    needed = Decimal(far.instead.removeprefix("max=$"))
    (found,) = relax(market, job(budget_cap_usd=needed - Decimal("0.10")), POLICY, CLOUDS, WHOLE)
    assert (found.instead, found.is_far) == (far.instead, False)
    assert "$0.10 more, 1 offer fits" in found.sentence
    assert rank(market, job(budget_cap_usd=needed), POLICY, CLOUDS, proof=WHOLE).answered == 1
    assert rank(market, job(budget_cap_usd=needed - Decimal("0.01")), POLICY, CLOUDS, proof=WHOLE).answered == 0


def test_a_price_that_is_far_from_what_was_asked_is_the_last_advice() -> None:
    wanted = job(gpu=GpuConstraint(("RTX3090",), 1, 1), max_price_usd_h=Decimal("0.10"))
    dear = offer("3", gpu="RTX3090", price_usd_h=Decimal("0.90"))
    cheap = offer("4", gpu="RTX4090", price_usd_h=Decimal("0.09"))
    found = relax([dear, cheap], wanted, POLICY, CLOUDS, WHOLE)
    assert [(one.word, one.is_far) for one in found] == [("gpu", False), ("price", True)]


def test_the_image_of_the_request_is_no_advice() -> None:
    """Its price is what is in the way, whichever of the policy's images it names."""
    for image in POLICY.image_capabilities:
        wanted = job(image=image, max_price_usd_h=Decimal("0.25"))
        advised = [one.instead for one in relax([offer(), offer("2")], wanted, POLICY, CLOUDS, WHOLE)]
        assert f"image={image}" not in advised


def test_no_gpu_with_less_memory_than_asked_is_advised() -> None:
    small = [offer("v100", gpu="V100-16GB", memory_gb=Decimal(16), price_usd_h=Decimal("0.10"))]
    large = [offer("h200", gpu="H200", memory_gb=Decimal(141), price_usd_h=Decimal(3))]
    wanted = job(gpu=GpuConstraint(("A100-PCIE-80GB",)))
    assert relax(small, wanted, POLICY, CLOUDS, WHOLE) == ()
    assert [one.instead for one in relax(small + large, wanted, POLICY, CLOUDS, WHOLE)] == ["gpu=H200"]
    for asked in (GpuConstraint(memory_gb_min=Decimal(40)), GpuConstraint(("RTX4090",), memory_gb_min=Decimal(40))):
        assert relax([offer()], job(gpu=asked), POLICY, CLOUDS, WHOLE) == ()
    either = job(gpu=GpuConstraint(("A100-PCIE-80GB", "RTX3090")))
    assert [one.instead for one in relax([offer()], either, POLICY, CLOUDS, WHOLE)] == ["gpu=RTX4090"]


def test_another_place_is_advised_before_another_cloud_a_price_or_another_machine() -> None:
    market = [
        offer("se", price_usd_h=Decimal(9)),
        offer("us", region="US", country="US", price_usd_h=Decimal("9.5"), spot=True),
        offer("a40", gpu="A40", memory_gb=Decimal(48), region="US", country="US", price_usd_h=Decimal("0.10")),
        offer("two", gpu_count=2, region="US", country="US", price_usd_h=Decimal("0.20")),
    ]
    found = relax(market, job(regions=("US",)), POLICY, CLOUDS, WHOLE)
    assert [one.word for one in found] == ["region", "spot", "count", "gpu"]


def test_a_gpu_that_the_image_is_too_old_for_gets_an_image_that_runs_on_it() -> None:
    new = [offer(gpu="RTX5090", memory_gb=Decimal(32))]
    wanted = job(gpu=GpuConstraint(("RTX5090",)), candidates=("vast",))
    assert rank(new, wanted, POLICY, CLOUDS, proof=WHOLE).options == ()
    found = relax(new, wanted, POLICY, CLOUDS, WHOLE)
    assert found[0].instead == "image=pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"
    able = replace(wanted, image=found[0].instead.removeprefix("image="))
    assert [one.offer.gpu for one in rank(new, able, POLICY, CLOUDS, proof=WHOLE).options] == ["RTX5090"]


def test_two_limits_in_the_way_are_nobodys_single_fault() -> None:
    assert relax([offer()], job(regions=("US",), max_price_usd_h=Decimal("0.1")), POLICY, CLOUDS, WHOLE) == ()
    both = [offer(price_usd_h=Decimal(2)), offer("us", region="US", country="US", price_usd_h=Decimal(9))]
    found = relax(both, job(regions=("US",), max_price_usd_h=Decimal(5)), POLICY, CLOUDS, WHOLE)
    assert [one.instead for one in found] == ["region=SE", "price=$9.00"]
    assert found[0].expected_usd < found[1].expected_usd


def test_limits_that_are_wide_open_already_are_not_named() -> None:
    open_job = job(gpu=GpuConstraint((), 1, POLICY.max_gpus), spot=SpotPolicy.ANY, max_price_usd_h=Decimal("0.1"))
    assert [one.word for one in relax([offer()], open_job, POLICY, CLOUDS, WHOLE)] == ["price"]


def test_the_clouds_are_asked_for_everything_that_a_limit_could_open() -> None:
    wide = widest(job(candidates=("vast",), offer_id="vast:1"), POLICY)
    assert (wide.gpu, wide.spot, wide.candidates) == (GpuConstraint((), 1, POLICY.max_gpus), SpotPolicy.ANY, ())
