"""Pick the layouts that people would run: with memory to spare and enough tokens at a time.

A run that fills its memory to the last percent fragments and fails, and one with few tokens per forward pass leaves the
GPU waiting; both bounds come from how well published runs are predicted when their layout is not given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bot.rules.sizing.vram import MemoryLayout, choices, parts, usable_gb
from bot.rules.sizing.workload import Architecture, Workload
from providers.gpus.table import GpuModel

#: Share of the memory that a run plans to use.
MOST_USED = 0.9
#: Tokens of one forward and backward pass below which a GPU waits.
LEAST_TOKENS = 4096


def likely(work: Workload, shape: Architecture, gpu: GpuModel, count: int) -> tuple[MemoryLayout, ...]:
    """Return the layouts that fit with memory to spare and enough tokens; those that fit where none does."""
    fitting = choices(work, gpu, count)
    if not work.trains or work.micro_batch is not None:
        return fitting
    has = usable_gb(gpu) * MOST_USED
    spare = [plan for one in fitting for plan in _smaller(one) if _gb(work, shape, count, plan) <= has]
    # The first of each kind has the largest micro batch that leaves memory.
    largest = {(plan.kind, plan.sharding, plan.checkpointing, plan.offload): plan for plan in reversed(spare)}
    enough = [plan for plan in largest.values() if plan.micro_batch * work.sequence >= LEAST_TOKENS]
    return tuple(enough) or tuple(largest.values()) or fitting


def _smaller(plan: MemoryLayout) -> Iterator[MemoryLayout]:
    yield plan
    while plan.micro_batch > 1:
        plan = replace(plan, micro_batch=plan.micro_batch // 2)
        yield plan


def _gb(work: Workload, shape: Architecture, count: int, plan: MemoryLayout) -> float:
    return sum(part.gb for part in parts(work, shape, count, plan))
