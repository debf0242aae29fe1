"""Describe a run by what published runs differ in, so that effects that were fitted on them can be added up.

Each feature is a share of a natural logarithm: the rate that physics predicts is multiplied by e to the power of the
sum of effect x feature. Features say nothing about the layout that a program chose: only what a user can know.
"""

from __future__ import annotations

import math
from decimal import Decimal

from bot.rules.sizing.groups import Group
from bot.rules.sizing.throughput_data import GPUS_PER_MACHINE
from bot.rules.sizing.vram import MemoryLayout
from bot.rules.sizing.workload import Architecture, Precision, WorkKind, Workload
from providers.gpus.table import GpuModel

#: Rates of earlier years are as slow as their time; after the last year nothing is extrapolated.
FIRST_YEAR, LAST_YEAR = 2023, 2025
#: GPUs whose memory reads this much, in GB/s, wait for launches more than for reading when one sequence is generated.
WIDE_MEMORY_GB_S = 1500
#: Experts at least this wide multiply as well as any matrix.
_WIDE_EXPERT = 4096
#: NVIDIA's compute capabilities of cards for workstations and players; their servers' siblings (A10, L40S) share them.
_WORKSTATION = frozenset([Decimal("8.6"), Decimal("8.9"), Decimal("12.0")])
_DATA_CENTER = frozenset(["Ampere", "Hopper"])

TRAINING_FEATURES = (
    *("any", "year", "fp8", "lora", "qlora", "experts", "thin experts", "small", "alone", "machines"),
    *("workstation", "blackwell", "amd", "older"),
)
DECODING_FEATURES = ("any", "year", "int8", "int4", "wide memory", "int4 on wide memory", "several")


def group(work: Workload, shape: Architecture, gpu: GpuModel) -> Group:
    """Return the group of a run."""
    if not work.trains:
        return Group.DECODING
    if work.adapts:
        return Group.ADAPTERS
    if shape.expert_params:
        return Group.EXPERTS
    return Group.DENSE if is_data_center(gpu) and gpu.architecture in _DATA_CENTER else Group.NEW


def is_data_center(gpu: GpuModel) -> bool:
    """Whether a GPU is of a maker's data-center line, not of the line for workstations and players."""
    return gpu.compute_capability not in _WORKSTATION


def features(
    work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout, year: int = LAST_YEAR
) -> dict[str, float]:
    """Return every feature of the run, trained or generated, that is not 0."""
    found = _training(work, shape, gpu, count, plan.kind) if work.trains else _decoding(plan, gpu, count)
    since = float(min(max(year, FIRST_YEAR), LAST_YEAR) - LAST_YEAR)
    return {name: value for name, value in {"any": 1.0, "year": since, **found}.items() if value}


def _training(work: Workload, shape: Architecture, gpu: GpuModel, count: int, kind: WorkKind) -> dict[str, float]:
    return {
        "fp8": float(work.number_format is Precision.FP8),
        "lora": float(kind is WorkKind.LORA),
        "qlora": float(kind is WorkKind.QLORA),
        "experts": float(shape.expert_params > 0),
        "thin experts": max(math.log2(_WIDE_EXPERT / shape.expert_width), 0.0) if shape.expert_width else 0.0,
        "small": max(math.log10(1e9 / shape.matmul_params), 0.0),
        "alone": float(count == 1),
        "machines": math.log2(max(math.ceil(count / GPUS_PER_MACHINE), 1)) / 4,
        "workstation": float(not is_data_center(gpu) and gpu.compute_capability is not None),
        "blackwell": float(gpu.architecture == "Blackwell" and is_data_center(gpu)),
        "amd": float(gpu.compute_capability is None),
        "older": float(gpu.architecture in ("Volta", "Turing", "Pascal")),
    }


def _decoding(plan: MemoryLayout, gpu: GpuModel, count: int) -> dict[str, float]:
    short = float(plan.weights in (Precision.INT4, Precision.MXFP4))
    wide = float((gpu.bandwidth_gb_s or 0) >= WIDE_MEMORY_GB_S)
    half = float(plan.weights in (Precision.INT8, Precision.FP8))
    return {
        "int8": half,
        "int4": short,
        "wide memory": wide,
        "int4 on wide memory": short * wide,
        "several": float(count > 1),
    }
