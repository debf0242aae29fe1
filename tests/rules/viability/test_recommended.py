"""Usual plans in markets full of cheaper offers that cannot run them: what is recommended is known to run."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.grammar.parser import ParsedCommand, parse
from bot.rules.market.disk import disk_gb
from bot.rules.market.ranking import BEST_COST, Ranked, rank
from bot.rules.policy.policy import Policy
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from providers.images import Vendor
from tests.providers.read_offers import WHOLE
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


#: Nothing above 24 GB.
SMALL = """
T4 4 0.40 120 1000 12.4
RTX3060 1 0.06 32 500 12.4
RTX2080Ti 8 0.60 256 2000 12.2
A4000 1 0.12 32 500 12.4
RTX4080 1 0.25 64 500 12.8
RTX3090 1 0.16 64 500 12.4
RTX3090 4 0.70 256 2000 12.4
RTX3090 8 1.50 512 4000 12.8
RTX4090 1 0.36 64 500 12.8
RTX4090 8 2.90 512 4000 12.8
L4 4 1.60 192 1000 12.8
"""
#: AMD's GPUs, cheaper than the few others.
AMD = """
MI210 1 0.40 200 2000 12.8
MI250X 4 1.60 500 4000 12.8
MI300X 1 0.60 200 2000 12.8
MI300X 8 4.80 2000 8000 12.8
MI325X 8 6.00 2000 8000 12.8
RX7900XTX 1 0.10 64 500 12.8
PROW7900 2 0.40 128 1000 12.8
A5000 1 0.22 64 500 12.8
A100-PCIE-80GB 2 2.10 200 1000 12.8
H100-SXM 8 16.00 2000 8000 12.8
"""


def market(table: str = MARKET) -> list[Offer]:
    """Every offer of a table, at Vast."""
    found = []
    for number, line in enumerate(table.strip().splitlines()):
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
    found = rank(market(), replace(wanted, disk_gb=disk_gb(wanted, POLICY)), POLICY, CLOUDS, top=99, proof=WHOLE)
    best = found.options[0]
    assert (best.offer.gpu, best.offer.gpu_count) in runs_on
    assert BEST_COST in best.marks
    assert not best.estimate.tight
    for one in found.options:
        assert one.offer.gpu not in {"MI300X", "T4", "P100", "V100-32GB", "RTX5090"}
        assert (one.offer.cuda_max or 0) >= Decimal("12.4")
    assert found.refused.startswith("Cheapest per hour, but skipped: ")


FULL_7B = "model=llama-2-7b type=finetune seq=2048 tokens=50M"
FULL_70B = "model=llama-2-70b type=finetune seq=2048 tokens=50M"
LORA_7B = "model=llama-2-7b type=lora seq=1024 tokens=5M"
SERVED_70B = "model=llama-2-70b type=serving tokens=10M"


def ranked(table: str, work: str, **more: Any) -> Ranked:
    wanted = job(gpu=GpuConstraint(count_min=1, count_max=8), work=tuple(work.split()), **more)
    return rank(market(table), replace(wanted, disk_gb=disk_gb(wanted, POLICY)), POLICY, CLOUDS, top=99, proof=WHOLE)


@pytest.mark.parametrize(
    ("work", "runs_on"),
    [
        # 13.5 GB of weights, 27 GB of gradients and 81 of optimizer: shared by 8, or by 4 with half on the host.
        (FULL_7B, {("RTX3090", 8), ("RTX4090", 8), ("RTX3090", 4)}),
        # 1.1 TB of states, and 138 GB of weights and gradients on the GPUs: no host here has the memory.
        (FULL_70B, set()),
        (LORA_7B, {("RTX3090", 1), ("RTX3090", 8), ("RTX4090", 1), ("A4000", 1), ("RTX4080", 1)}),
        # 129 GiB of weights over eight GPUs of 24 GB.
        (SERVED_70B, {("RTX3090", 8), ("RTX4090", 8)}),
    ],
)
def test_small_gpus_alone(work: str, runs_on: set[tuple[str, int]]) -> None:
    found = ranked(SMALL, work)
    assert bool(found.options) is bool(runs_on)
    for one in found.options[:1]:
        assert (one.offer.gpu, one.offer.gpu_count) in runs_on
        assert not one.estimate.tight
    # Turing has no bf16.
    assert {one.offer.gpu for one in found.options}.isdisjoint({"T4", "RTX2080Ti"})
    assert found.options or found.refused


@pytest.mark.parametrize(
    ("work", "cuda", "rocm"),
    [
        (FULL_7B, {("A100-PCIE-80GB", 2), ("H100-SXM", 8)}, {("MI300X", 1), ("MI300X", 8), ("MI250X", 4)}),
        (FULL_70B, {("H100-SXM", 8)}, {("MI300X", 8), ("MI325X", 8)}),
        (LORA_7B, {("A5000", 1)}, {("RX7900XTX", 1), ("PROW7900", 2), ("MI210", 1), ("MI300X", 1)}),
        (SERVED_70B, {("A100-PCIE-80GB", 2), ("H100-SXM", 8)}, {("MI300X", 1), ("MI250X", 4), ("MI300X", 8)}),
    ],
)
def test_a_market_of_amd_gpus(work: str, cuda: set[tuple[str, int]], rocm: set[tuple[str, int]]) -> None:
    for image, runs_on in ((None, cuda), ("rocm/pytorch:rocm6.4", rocm)):
        found = ranked(AMD, work, **({} if image is None else {"image": image}))
        best = found.options[0]
        assert (best.offer.gpu, best.offer.gpu_count) in runs_on, (image, best.offer.gpu, best.offer.gpu_count)
        assert not best.estimate.tight
        vendor = Vendor.NVIDIA if image is None else Vendor.AMD
        assert {GPUS[one.offer.gpu].vendor for one in found.options} == {vendor}


@pytest.mark.parametrize(
    ("line", "runs_on", "disk"),
    [
        # 34 GB of weights beside the image; the network and its text encoders need 36 GB of memory.
        ("plan FLUX.1-dev", {"A6000", "A100-SXM-80GB", "L40S", "H100-SXM"}, 54),
        ("plan FLUX.1-dev images=10000", {"A6000", "A100-SXM-80GB", "L40S", "H100-SXM"}, 54),
        ("plan whisper-large-v3", {"T4", "V100-32GB", "RTX3090", "RTX4090"}, 50),
        ("plan whisper-large-v3 audio-hours=500", {"T4", "V100-32GB", "RTX3090", "RTX4090"}, 50),
    ],
)
def test_images_and_sound_run_where_they_are_recommended(line: str, runs_on: set[str], disk: int) -> None:
    said = parse(line, POLICY)
    assert isinstance(said, ParsedCommand)
    wanted = said.job
    assert wanted is not None
    wanted = replace(wanted, disk_gb=disk_gb(wanted, POLICY))
    assert wanted.disk_gb == disk
    found = rank(market(), wanted, POLICY, CLOUDS, top=99, proof=WHOLE)
    best = found.options[0]
    assert best.offer.gpu in runs_on
    assert best.estimate.fit.startswith("Fits: ")
    assert not best.estimate.tight
    known = "=" in line
    assert (best.estimate.outlook is not None) is known
    assert best.estimate.rate_unit == ("images" if "FLUX" in line else "audio seconds")
    if not known:
        assert best.estimate.unknown[0].startswith("How many ")
