"""Four usual plans in a market full of cheaper offers that cannot run them: what is recommended is known to run."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.market.disk import disk_gb
from bot.rules.market.ranking import BEST_COST, rank
from bot.rules.policy.policy import Policy
from ledger.kernel.job import GpuConstraint
from providers.contract import Offer
from providers.gpus.table import GPUS
from tests.rules.builders import CLOUDS, job, offer

POLICY = Policy()
#: GPU, number, dollars per hour of all, GB of the host's memory, GB of disk, newest CUDA of the driver.
MARKET = """
MI300X 1 0.60 200 2000 12.8
MI300X 8 4.80 1600 8000 12.8
T4 1 0.10 30 500 12.4
P100 1 0.08 30 500 12.4
V100-32GB 8 2.00 500 3000 12.4
RTX3090 1 0.15 32 500 12.2
RTX3090 1 0.20 8 500 12.4
RTX4090 1 0.36 32 40 12.8
RTX4090 1 0.40 64 500 12.8
RTX5090 1 0.30 64 500 12.8
A6000 1 0.50 64 1000 12.8
L40S 2 1.60 128 1000 12.8
A100-SXM-80GB 1 1.10 100 1000 12.8
A100-SXM-80GB 2 2.20 200 1000 12.8
A100-SXM-80GB 8 8.80 900 2000 12.8
A100-SXM-80GB 8 9.60 2000 200 12.8
H100-SXM 8 16.00 2000 8000 12.8
"""


def market() -> list[Offer]:
    """Every offer of the table, at Vast."""
    found = []
    for number, line in enumerate(MARKET.strip().splitlines()):
        gpu, count, price, ram, disk, cuda = line.split()
        found.append(
            offer(
                str(number),
                gpu=gpu,
                gpu_count=int(count),
                memory_gb=Decimal(GPUS[gpu].memory_gb),
                price_usd_h=Decimal(price),
                ram_gb=Decimal(ram),
                disk_gb_max=int(disk),
                cuda_max=Decimal(cuda),
            )
        )
    return found


@pytest.mark.parametrize(
    ("work", "runs_on"),
    [
        # 16 bytes per weight: 108 GB of states, more than one 80 GB GPU holds, and a disk for two checkpoints of 94 GB.
        (
            "model=llama-2-7b type=finetune seq=2048 tokens=50M",
            {("A100-SXM-80GB", 8), ("A100-SXM-80GB", 2), ("H100-SXM", 8)},
        ),
        # 1.1 TB of states: only with the optimizer in the memory of a host that has it.
        ("model=llama-2-70b type=finetune seq=2048 tokens=50M", {("H100-SXM", 8)}),
        ("model=llama-2-7b type=lora seq=1024 tokens=5M", {("RTX4090", 1), ("A6000", 1), ("A100-SXM-80GB", 1)}),
        # 129 GiB of weights in 16 bits.
        ("model=llama-2-70b type=serving tokens=10M", {("A100-SXM-80GB", 2), ("A100-SXM-80GB", 8), ("H100-SXM", 8)}),
    ],
)
def test_what_is_recommended_runs(work: str, runs_on: set[tuple[str, int]]) -> None:
    wanted = job(gpu=GpuConstraint(count_min=1, count_max=8), work=tuple(work.split()))
    found = rank(market(), replace(wanted, disk_gb=disk_gb(wanted, POLICY)), POLICY, CLOUDS, top=99)
    best = found.options[0]
    assert (best.offer.gpu, best.offer.gpu_count) in runs_on
    assert BEST_COST in best.marks
    assert not best.estimate.tight
    for one in found.options:
        assert one.offer.gpu not in {"MI300X", "T4", "P100", "V100-32GB", "RTX5090"}
        assert (one.offer.cuda_max or 0) >= Decimal("12.4")
    assert found.refused.startswith("Cheapest per hour, but skipped: ")
