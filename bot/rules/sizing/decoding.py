"""Estimate tokens per second of text generation: every step reads the weights and the KV cache from memory once.

The coefficients come from published single-stream rates (see `sizing.throughput_fitted`). Many sequences at once share
one reading of the weights until the multiplications take longer than the reading; a mixture of experts then touches
more of its experts. Terms, in seconds by the data sheet where bytes are read:

- reading: the weights, and the KV cache of half-full sequences, over the memory bandwidth.
- layer: one for each layer, for launching its kernels.
- exchange: one more for each layer that GPUs share over NVLink, three over PCI Express, whose latency is higher.

Prompts are read all at once, by multiplications alone, at half of the peak rate. Sequences end at different times and
steps wait for prompts, so a batch brings a little less than its size. Both are calibrated on published rates of vLLM
with 4 to 256 sequences (tests/rules/sizing/test_serving.py); a single sequence is not changed by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from bot.rules.sizing.host_speed import AS_SOLD, HostSpeed
from bot.rules.sizing.throughput_data import NVLINK_GB_S
from bot.rules.sizing.training import peak_flops
from bot.rules.sizing.vram import MXFP4_BYTES, MemoryLayout, kv_bytes, most_at_once, weight_bytes
from bot.rules.sizing.workload import Architecture, Precision, Workload
from providers.gpus.table import GpuModel

TERMS = ("reading", "layer", "exchange")
_OVER_PCIE = 3.0
#: Share of the peak rate at which prompts are read.
PROMPT_SHARE = 0.5
#: A batch of n sequences brings n to this power: the least squares of the published rates with many sequences.
BATCH_EXPONENT = 0.92


def terms(
    work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout, at_once: int
) -> dict[str, float]:
    """Return the time of each of `TERMS` for one step of `at_once` sequences, on GPUs that share every layer.

    The GPU's bandwidth must be known.
    """
    bandwidth = float(gpu.bandwidth_gb_s or 0) * 1e9 * count
    weights = _read_bytes(shape, at_once, plan.weights)
    cache = kv_bytes(shape, _average_length(work), count) * at_once
    shared = 0.0 if count == 1 else 1.0 if gpu.name in NVLINK_GB_S else _OVER_PCIE
    return {
        "reading": (weights + cache) / bandwidth,
        "layer": float(shape.layers),
        "exchange": shared * shape.layers,
    }


def tokens_per_s(
    work: Workload,
    shape: Architecture,
    gpu: GpuModel,
    count: int,
    plan: MemoryLayout,
    coefficients: Mapping[str, float],
    host: HostSpeed = AS_SOLD,
) -> float:
    """Return generated tokens per second of all sequences together. The GPU's bandwidth and peak must be known."""
    at_once = most_at_once(work, shape, gpu, count, plan)
    times = {name: coefficients[name] * time for name, time in terms(work, shape, gpu, count, plan, at_once).items()}
    peak = (peak_flops(gpu, work.number_format) or 0.0) * count * host.multiplying_share
    multiplying = 2.0 * shape.matmul_params * at_once / peak
    step = max(times["reading"], multiplying) + times["layer"] + times["exchange"]
    prompts = (work.prompt_tokens or 0) / work.output_tokens if work.output_tokens else 0.0
    return 1 / (step / math.pow(at_once, BATCH_EXPONENT) + prompts * 2.0 * shape.matmul_params / (PROMPT_SHARE * peak))


def _average_length(work: Workload) -> float:
    """Return how many tokens of a sequence are in the KV cache on average: the prompt and half of what follows."""
    if work.output_tokens is None:
        return work.sequence / 2
    return (work.prompt_tokens or 0) + work.output_tokens / 2


def _read_bytes(shape: Architecture, at_once: int, precision: Precision) -> float:
    """Return the bytes of weights that one step reads; in MXFP4 only the experts are short."""
    if precision is not Precision.MXFP4:
        return touched(shape, at_once) * weight_bytes(precision)
    experts = float(shape.layers * shape.mlp_matrices * shape.width * shape.mlp_width) if shape.expert_params else 0.0
    rest = shape.matmul_params - experts
    return (touched(shape, at_once) - rest) * MXFP4_BYTES + rest * weight_bytes(Precision.BF16)


def touched(shape: Architecture, at_once: int) -> float:
    """Return the weights that one step reads: those of one token, and of more experts for more sequences."""
    one = min(shape.matmul_params / shape.total_params, 1.0)
    return shape.total_params * (1 - (1 - one) ** at_once) if one < 1 else float(shape.total_params)
