"""Which offers can run a software stack, before anything is priced."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.rules.market.filters import image_of, least_cuda
from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, capabilities, job, offer

POLICY = Policy(max_gpus=64)
OWN = "own/image:1"


@pytest.mark.parametrize(
    ("install", "change", "code"),
    [
        ("train", {"cuda_max": Decimal("12.2")}, None),
        ("train", {"cuda_max": Decimal("11.8")}, "install_driver"),
        ("serve", {"cuda_max": Decimal("12.6")}, "install_driver"),
        ("serve", {"cuda_max": Decimal("12.8")}, None),
        ("serve", {"cuda_max": None}, None),
        ("serve", {"cuda_max": Decimal("NaN")}, "install_driver"),
        ("train", {"gpu": "P40", "memory_gb": Decimal(24)}, "install"),
        ("train", {"gpu": "V100-32GB", "memory_gb": Decimal(32)}, None),
        ("train", {"gpu": "B200", "memory_gb": Decimal(180)}, None),
        ("train", {"gpu": "X9000"}, None),
        ("train", {"gpu": "GH200", "memory_gb": Decimal(96)}, "install_processor"),
    ],
)
def test_what_cannot_run_the_software_is_refused_with_its_reason(
    install: str, change: dict[str, Any], code: str | None
) -> None:
    wanted = job(gpu=GpuConstraint((), 1, 64), image=OWN, install=install)
    found = rank([offer(**change)], wanted, POLICY, CLOUDS, proof=WHOLE)
    assert [one.reason_code for one in found.excluded] == ([code] if code else [])
    assert (
        rank([offer(**change)], job(gpu=GpuConstraint((), 1, 64), image=OWN), POLICY, CLOUDS, proof=WHOLE).answered == 1
    )


def test_amd_is_refused_also_with_an_image_for_it() -> None:
    wanted = job(gpu=GpuConstraint((), 1, 64), image="rocm/pytorch:latest", install="train")
    found = rank([offer(gpu="MI300X", memory_gb=Decimal(192))], wanted, POLICY, CLOUDS, proof=WHOLE)
    assert [one.reason_code for one in found.excluded] == ["install_vendor"]


def test_the_cheapest_refused_offer_is_named_with_its_reason() -> None:
    old, fits = offer(cuda_max=Decimal("12.6"), price_usd_h=Decimal("0.10")), offer("2")
    found = rank(
        [old, fits], job(gpu=GpuConstraint((), 1, 64), image=OWN, install="serve"), POLICY, CLOUDS, proof=WHOLE
    )
    assert found.refused.endswith("RTX4090: the packages of install= need a newer driver on the host.")


@pytest.mark.parametrize(
    ("able", "image", "code"),
    [
        ({"batch": True}, None, "install_agent"),
        ({"onstart_is_command": True}, OWN, "install_agent"),
        ({"onstart_is_command": True}, None, None),
        ({}, OWN, None),
    ],
)
def test_a_machine_without_an_agent_installs_nothing(able: dict[str, Any], image: str | None, code: str | None) -> None:
    wanted = job(gpu=GpuConstraint((), 1, 64), image=image, install="train", run="python train.py")
    found = rank([offer()], wanted, POLICY, {"vast": capabilities(**able)}, proof=WHOLE)
    assert [one.reason_code for one in found.excluded] == ([code] if code else [])


def test_a_cloud_is_asked_for_hosts_with_the_driver_that_the_software_needs() -> None:
    assert least_cuda(job(image=OWN, install="serve"), POLICY, "vast") == Decimal("12.8")
    assert least_cuda(job(image=OWN, install="train"), POLICY, "vast") == Decimal("12.0")
    assert least_cuda(job(image=OWN), POLICY, "vast") is None


def test_the_policy_can_name_an_image_for_the_software() -> None:
    policy = Policy(default_image={"default": "a", "vast": "b", "vast/train": "c"})
    assert [image_of(job(install=one), policy, "vast") for one in (None, "serve", "train")] == ["b", "b", "c"]
    assert image_of(job(install="train", image=OWN), policy, "vast") == OWN
