"""Break down the time of one training token into terms, in seconds by the hardware's data sheet.

Each term is a physical time that no run can be without; the coefficients in front of them are fitted once and are never
negative, so that an estimate grows with every one of them and extrapolates sanely:

- multiply: 6 FLOPs per weight and token (2 forward, 4 backward; 8 with recomputed activations) over the attainable
  rate.
- attention: 6 x layers x width x sequence FLOPs per token (causal: half of the 12 that are counted for utilisation),
  over the rate that attention kernels reach.
- memory: element-wise work, one pass of layers x width values over the memory bandwidth.
- mixed: the same once more where norms, sums and casts stay in 32 bits.
- exchange: weights and gradients that GPUs exchange per micro batch or step, and tokens that travel to experts and
  back, over the link inside the machine; or weights that stream through a GPU's own memory where it holds all of them.
- network: the same over the network between machines.
- waiting: the multiply time again for each doubling of the machines, since all wait for the slowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bot.rules.sizing.host_speed import AS_SOLD, HostSpeed
from bot.rules.sizing.optimizers import Optimizer
from bot.rules.sizing.throughput_data import (
    ATTAINABLE,
    ATTENTION_SHARE,
    DOUBLE_RATE_ARCHITECTURES,
    GPUS_PER_MACHINE,
    HOST_GB_S,
    MACHINE_GB_S,
    NVLINK_GB_S,
    OTHER_ATTENTION_SHARE,
    OTHER_MACHINE_GB_S,
    OTHER_PCIE_GB_S,
    PCIE_GB_S,
    RATE,
)
from bot.rules.sizing.throughput_fitted import Exponents
from bot.rules.sizing.vram import MemoryLayout
from bot.rules.sizing.workload import Architecture, Precision, Sharding, WorkKind, Workload
from providers.gpus.table import GpuModel

TERMS = ("multiply", "attention", "memory", "mixed", "exchange", "network", "waiting")
#: Experts are spread over at most this many GPUs, as in the published runs of mixtures.
MOST_EXPERT_PARALLEL = 64
_SHORT = frozenset([Precision.FP8, Precision.INT8])
_MIXED = frozenset([Precision.AMP_BF16, Precision.AMP_FP16, Precision.FP8])
_WIDE = frozenset([Precision.FP32, Precision.TF32])
#: Iterations with which Muon makes a matrix orthogonal.
_NEWTON_SCHULZ = 5
#: The seconds of GaLore's decompositions for this many weights of this width, and the steps between two of them.
_DECOMPOSED_S, _DECOMPOSED, _DECOMPOSED_EVERY = 600.0, (6.5e9, 4096), 200
#: Without dropout a masked pass reads what it wrote, so that recomputing adds a third to everything but the update.
_RECOMPUTED = 4 / 3


@dataclass(frozen=True, slots=True)
class TrainingHardware:
    """Hold hardware rates in units per second; `link` of one GPU is its memory's, `network` is between machines."""

    peak: float
    attention: float
    memory: float
    link: float
    network: float
    machines: int


def machine(gpu: GpuModel, count: int, precision: Precision, host: HostSpeed = AS_SOLD) -> TrainingHardware | None:
    """Return the rates of `count` GPUs; None when the peak rate or the memory bandwidth is not published."""
    peak = peak_flops(gpu, precision)
    if peak is None or gpu.bandwidth_gb_s is None:
        return None
    memory = float(gpu.bandwidth_gb_s) * 1e9
    attainable = ATTAINABLE.get(gpu.name, 1.0)
    share = ATTENTION_SHARE.get(gpu.architecture, OTHER_ATTENTION_SHARE)
    # Attention stays in 16 bits where the multiplications are in 8.
    attention = share * min(peak, float(gpu.peak_bf16_tflops or 0) * 1e12)
    between = OTHER_MACHINE_GB_S
    if gpu.name in NVLINK_GB_S:
        between = MACHINE_GB_S.get(gpu.architecture, OTHER_MACHINE_GB_S)
    return TrainingHardware(
        peak=peak * attainable * host.multiplying_share,
        attention=attention * host.multiplying_share,
        memory=memory,
        link=link_gb_s(gpu) * 1e9 * host.link_share if count > 1 else memory,
        network=between * 1e9,
        machines=math.ceil(count / GPUS_PER_MACHINE),
    )


def link_gb_s(gpu: GpuModel) -> float:
    """Return GB/s between two GPUs of one machine, one direction."""
    return NVLINK_GB_S.get(gpu.name) or PCIE_GB_S.get(gpu.architecture, OTHER_PCIE_GB_S)


def peak_flops(gpu: GpuModel, precision: Precision) -> float | None:
    """Return the dense FLOP/s of one GPU, the 16-bit ones for formats without own cores; None where unknown."""
    if gpu.peak_bf16_tflops is None:
        return None
    rate = RATE.get(precision, 1.0)
    if precision in _SHORT and gpu.architecture in DOUBLE_RATE_ARCHITECTURES:
        rate = 2.0
    return float(gpu.peak_bf16_tflops) * 1e12 * rate


def flops_per_token(work: Workload, shape: Architecture) -> float:
    """Return the FLOPs of one token: 6 per multiplied weight plus 12 x layers x width x sequence for attention.

    The count of mosaicml/llm-foundry and PaLM (arXiv:2204.02311, appendix B). Forward only: a third of it; adapters on
    frozen weights skip the gradients of the weights.
    """
    attention = 12.0 * shape.layers * shape.heads * shape.head_width * work.sequence
    if not work.trains:
        return 2.0 * shape.matmul_params + attention / 3
    return (4.0 if work.adapts else 6.0) * shape.matmul_params + attention


def terms(
    work: Workload, shape: Architecture, on: TrainingHardware, count: int, plan: MemoryLayout, exponents: Exponents
) -> tuple[float, ...]:
    """Return the times of `TERMS` for one token on one GPU, in seconds."""
    again = _RECOMPUTED if plan.checkpointing else 1.0
    adapts = plan.kind in (WorkKind.LORA, WorkKind.QLORA)
    per_weight = (4.0 + (2.0 if plan.checkpointing else 0.0)) if adapts else 6.0 * again
    # Adapters leave the output head frozen: its weights get no gradient either.
    multiply = (per_weight * shape.body_params + (4.0 if adapts else 6.0) * shape.head_params) / on.peak
    inner = shape.heads * shape.head_width
    narrow = (128 / shape.head_width) ** exponents.head
    attention = 6.0 * shape.layers * inner * work.sequence * again * narrow / on.attention
    wide = 2.0 if work.number_format in _WIDE else 1.0
    memory = shape.layers * shape.width * again * wide / on.memory
    mixed = memory if work.number_format in _MIXED else 0.0
    sent, streamed = _exchanged(work, shape, count, plan)
    between = sent / on.network if on.machines > 1 else 0.0
    waiting = multiply * math.log2(on.machines) ** exponents.waiting if on.machines > 1 else 0.0
    exchange = (sent + _routed(shape, count)) / on.link + streamed / on.memory
    return multiply, attention, memory, mixed, exchange, between, waiting


def _routed(shape: Architecture, count: int) -> float:
    """Return the bytes per token that go to experts on other GPUs and back, forward and backward, in 16 bits."""
    return 8.0 * shape.layers * shape.width * shape.routed * (1 - 1 / count)


def _exchanged(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> tuple[float, float]:
    """Return the bytes per token that one GPU exchanges with others, and those that it streams through its own memory.

    Shared weights are gathered twice and shared gradients reduced once per micro batch. Where each GPU holds all of
    them, it reads its weights and adds to its gradients once per micro batch, and gradients are reduced once per step.
    Experts stay where they are (expert parallelism): each GPU streams its own, and tokens travel instead of weights.
    """
    wide = work.number_format in _WIDE
    weight, gradient = (4.0, 4.0) if wide else (2.0, 4.0 if work.number_format in _MIXED else 2.0)
    experts = shape.expert_params if count > 1 else 0
    tokens = float(plan.micro_batch * work.sequence)
    per_token = (shape.total_params - experts) / tokens
    steps = max(work.batch / (plan.micro_batch * count), 1.0)
    frozen = plan.kind in (WorkKind.LORA, WorkKind.QLORA)
    learned = 0.0 if frozen else gradient
    own = (weight + learned) * experts / min(count, MOST_EXPERT_PARALLEL) / tokens
    if plan.sharding is Sharding.ZERO3 and count > 1:
        return (2 * weight + learned) * per_token, own
    if plan.sharding is Sharding.ZERO2 and count > 1:
        return (weight + learned) * per_token, own
    reduced = 2 * learned / steps if count > 1 else 0.0
    return reduced * per_token, (weight + learned) * per_token + own


def optimizer_s(work: Workload, shape: Architecture, on: TrainingHardware, count: int, plan: MemoryLayout) -> float:
    """Return the seconds per token and GPU that the named optimizer takes beyond AdamW, below 0 where it takes less.

    Each step reads and writes its state: 8-bit Adam 12 bytes per weight less than AdamW. arXiv:2110.02861, table 5, has
    47 ms per 1B weights instead of 63 on V100, and the bytes over that GPU's bandwidth are 13 ms. Muon multiplies:
    5 x width / (tokens of a batch) of the step's FLOPs (kellerjordan.github.io/posts/muon, "FLOP overhead"), over all
    GPUs. GaLore decomposes each gradient once in 200 steps, on each GPU: 10 minutes for the matrices of a 7B
    model, 4,096 wide (arXiv:2407.08296), growing with the weights and the width.
    """
    if work.adapts or plan.offload or work.optimizer is Optimizer.ADAMW:
        return 0.0
    tokens = float(max(work.batch * work.sequence, 1))
    shared = count if plan.sharding is not Sharding.DDP else 1
    moved = shape.optimizer_bytes(work.optimizer) - shape.optimizer_bytes(Optimizer.ADAMW)
    found = 2 * moved / shared / on.memory / (tokens / count)
    if work.optimizer is Optimizer.MUON:
        found += 6.0 * shape.body_params * _NEWTON_SCHULZ * shape.width / tokens / on.peak
    if work.optimizer is Optimizer.GALORE:
        decomposed = _DECOMPOSED_S * shape.body_params / _DECOMPOSED[0] * shape.width / _DECOMPOSED[1]
        found += decomposed / _DECOMPOSED_EVERY / (tokens / count)
    return found


def offload_s(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> float:
    """Return the seconds per token and GPU that an optimizer in the host's memory adds.

    It moves its bytes and the 32-bit gradients once per step.
    """
    if not plan.offload:
        return 0.0
    tokens = max(work.batch / count, float(plan.micro_batch)) * work.sequence
    moved = shape.optimizer_bytes(work.optimizer) + 4.0 * shape.total_params
    return moved / count / (HOST_GB_S * 1e9) / tokens
