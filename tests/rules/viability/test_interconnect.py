"""The links of this very offer: what was measured counts, and a slow one is said."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from bot.rules.viability.interconnect import measured_gb_s, slow_link
from ledger.kernel.job import GpuConstraint
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
    assert slow_link(sold) == said


def test_a_plan_says_it() -> None:
    wanted = job(gpu=GpuConstraint(count_min=1, count_max=8), work=("model=125M", "tokens=1M"))
    (option,) = rank([offer(gpu_count=2, pcie_gb_s=Decimal(6))], wanted, Policy(), CLOUDS).options
    assert SLOW in option.estimate.assumptions
