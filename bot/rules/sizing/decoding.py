"""Estimate tokens per second of text generation: every step reads the weights and the KV cache from memory once.

The shares of the bandwidth and the fixed time per layer come from published single-stream rates (see
`sizing.throughput_data`). Many sequences at once share one reading of the weights until the multiplications take
longer than the reading; a mixture of experts then touches more of its experts.
"""

from __future__ import annotations

from bot.rules.sizing import throughput_data as table
from bot.rules.sizing.training import peak_flops
from bot.rules.sizing.vram import MemoryLayout, kv_bytes, most_at_once, weight_bytes
from bot.rules.sizing.workload import Architecture, Workload
from providers.gpus.table import GpuModel


def tokens_per_s(work: Workload, shape: Architecture, gpu: GpuModel, count: int, plan: MemoryLayout) -> float:
    """Return generated tokens per second of all sequences together, on GPUs that share every layer.

    The sequences are half full on average. The GPU's bandwidth and peak must be known.
    """
    at_once = most_at_once(work, shape, gpu, count, plan)
    share = table.DECODE_SHARE.get(plan.weights, table.OTHER_DECODE_SHARE)
    bandwidth = float(gpu.bandwidth_gb_s or 0) * 1e9 * count
    weights = touched(shape, at_once) * weight_bytes(plan.weights) / share
    cache = kv_bytes(shape) * work.sequence / 2 * at_once / table.OTHER_DECODE_SHARE
    reading = (weights + cache) / bandwidth
    multiplying = 2.0 * shape.matmul_params * at_once / ((peak_flops(gpu, work.number_format) or 0.0) * count)
    layer = table.LAYER_S + (table.EXCHANGE_S if count > 1 else 0.0)
    return at_once / (max(reading, multiplying) + shape.layers * layer)


def touched(shape: Architecture, at_once: int) -> float:
    """Return the weights that one step reads: those of one token, and of more experts for more sequences."""
    one = min(shape.matmul_params / shape.total_params, 1.0)
    return shape.total_params * (1 - (1 - one) ** at_once) if one < 1 else float(shape.total_params)
