"""The host of this very offer: its measured links and its power limit change the time, the cost and the rank."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from bot.rules.sizing.host_speed import WATTS, HostSpeed
from bot.rules.viability.interconnect import host_speed, measured_gb_s, slow_host
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, job, offer

SLOW = "This host's GPUs exchange data at 6 GB/s instead of 32 GB/s, so a run that shares its weights takes longer."


@pytest.mark.parametrize(
    ("facts", "measured", "said"),
    [
        ({}, None, ""),
        ({"gpu_count": 1, "pcie_gb_s": Decimal(6)}, None, ""),
        ({"pcie_gb_s": Decimal(6)}, 6, SLOW),
        ({"pcie_gb_s": Decimal(24)}, 24, ""),
        ({"pcie_gb_s": Decimal("NaN")}, None, ""),
        ({"pcie_gb_s": Decimal(0)}, None, ""),
        ({"gpu": "A100-SXM-80GB", "pcie_gb_s": Decimal(6), "nvlink_gb_s": Decimal(0)}, None, ""),
        ({"gpu": "A100-SXM-80GB", "pcie_gb_s": Decimal(6), "nvlink_gb_s": Decimal(260)}, 260, ""),
        ({"gpu": "X9000", "pcie_gb_s": Decimal(6)}, 6, ""),
    ],
)
def test_a_slow_link_is_said_where_it_was_measured(facts: dict[str, Any], measured: int | None, said: str) -> None:
    sold = offer(**{"gpu_count": 2, **facts})
    assert measured_gb_s(sold) == measured
    assert " ".join(slow_host(sold)) == said


def test_a_plan_says_it() -> None:
    wanted = job(gpu=GpuConstraint(count_min=1, count_max=8), work=("model=125M", "tokens=1M"))
    (option,) = rank([offer(gpu_count=2, pcie_gb_s=Decimal(6))], wanted, Policy(), CLOUDS, proof=WHOLE).options
    assert SLOW in option.estimate.assumptions


@pytest.mark.parametrize(
    ("facts", "speed"),
    [
        ({}, HostSpeed(0, 0)),
        ({"power_limit_w": Decimal(450)}, HostSpeed(0, 0)),
        ({"power_limit_w": Decimal(600)}, HostSpeed(0, 0)),
        ({"power_limit_w": Decimal(420)}, HostSpeed(0, 0)),
        ({"power_limit_w": Decimal(360)}, HostSpeed(0, 1)),
        ({"power_limit_w": Decimal(1)}, HostSpeed(0, 3)),
        ({"power_limit_w": Decimal("NaN")}, HostSpeed(0, 0)),
        ({"power_limit_w": Decimal(0)}, HostSpeed(0, 0)),
        ({"gpu": "X9000", "power_limit_w": Decimal(1), "pcie_gb_s": Decimal(1)}, HostSpeed(0, 0)),
        ({"pcie_gb_s": Decimal(16)}, HostSpeed(0, 0)),
        ({"pcie_gb_s": Decimal(8)}, HostSpeed(1, 0)),
        ({"pcie_gb_s": Decimal("0.01")}, HostSpeed(5, 0)),
        ({"gpu": "H100-SXM", "nvlink_gb_s": Decimal(50), "pcie_gb_s": Decimal(1)}, HostSpeed(2, 0)),
    ],
)
def test_a_host_has_one_of_few_speeds(facts: dict[str, Any], speed: HostSpeed) -> None:
    assert host_speed(offer(**{"gpu_count": 2, **facts})) == speed


def test_little_power_costs_less_than_its_share() -> None:
    # Puget: 95 % at 80 % of the power on RTX 3090; factryze: 85 to 90 % at 86 % on H100. Between both.
    assert 0.87 < HostSpeed(0, 1).multiplying_share < 0.95
    assert HostSpeed(0, 3).multiplying_share == pytest.approx(0.787, abs=0.001)
    assert HostSpeed(2, 0).link_share == 0.25
    assert set(WATTS) <= set(GPUS)


TRAINED = ("model=1B", "type=finetune", "tokens=20M", "seq=2048", "batch=64")
ANY = GpuConstraint(count_min=1, count_max=8)


def test_a_slow_link_or_little_power_costs_time_money_and_rank() -> None:
    sold = [
        offer("slow", gpu_count=8, pcie_gb_s=Decimal(1)),
        offer("weak", gpu_count=8, pcie_gb_s=Decimal(24), power_limit_w=Decimal(225)),
        offer("good", gpu_count=8, pcie_gb_s=Decimal(24), power_limit_w=Decimal(450), price_usd_h=Decimal("0.41")),
        offer("mute", gpu_count=8, price_usd_h=Decimal("0.42")),
    ]
    found = {
        one.offer.key: one.estimate
        for one in rank(sold, job(gpu=ANY, work=TRAINED), Policy(), CLOUDS, top=9, proof=WHOLE).options
    }
    assert [*found][:2] == ["good", "mute"]
    assert found["good"].tokens_per_s == found["mute"].tokens_per_s
    rates = {key: one.tokens_per_s[0] for key, one in found.items() if one.tokens_per_s is not None}
    assert rates["slow"] * Decimal("1.5") < rates["good"]
    assert rates["weak"] * Decimal("1.1") < rates["good"]
    assert found["weak"].hours > found["good"].hours
    assert found["weak"].expected_usd > found["good"].expected_usd
    assert any("limits each GPU to 225 W of 450 W" in said for said in found["weak"].assumptions)


def test_a_limit_does_not_slow_the_reading_of_memory() -> None:
    wanted = job(gpu=ANY, work=("model=1B", "type=serving", "tokens=1M", "concurrency=1"))
    sold = [offer("weak", power_limit_w=Decimal(225)), offer("good")]
    rates = [one.estimate.tokens_per_s for one in rank(sold, wanted, Policy(), CLOUDS, top=9, proof=WHOLE).options]
    assert rates[0] == rates[1]
