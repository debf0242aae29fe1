"""The layouts that people would run."""

from __future__ import annotations

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.layouts import LEAST_TOKENS, MOST_USED, likely
from bot.rules.sizing.vram import MemoryLayout, choices, parts, usable_gb
from bot.rules.sizing.workload import Architecture, Workload, architecture
from providers.gpus.table import GPUS


def shaped(work: Workload) -> Architecture:
    found = architecture(work)
    assert found is not None
    return found


def found(line: str, gpu: str, count: int) -> tuple[MemoryLayout, ...]:
    work = parse(line)
    return likely(work, shaped(work), GPUS[gpu], count)


def test_memory_is_left_and_enough_tokens_pass_at_once() -> None:
    work = parse("model=7B seq=2048 batch=512")
    plans = likely(work, shaped(work), GPUS["A100-SXM-80GB"], 8)
    for plan in plans:
        used = sum(part.gb for part in parts(work, shaped(work), 8, plan))
        assert used <= MOST_USED * usable_gb(GPUS["A100-SXM-80GB"])
        assert plan.micro_batch * work.sequence >= LEAST_TOKENS
    assert len(plans) == len({(plan.sharding, plan.checkpointing) for plan in plans})


def test_the_largest_micro_batch_that_leaves_memory_is_taken() -> None:
    (plan,) = {one for one in found("model=1B seq=512 batch=512", "A100-SXM-40GB", 1) if not one.checkpointing}
    work = parse("model=1B seq=512 batch=512")
    larger = sum(part.gb for part in parts(work, shaped(work), 1, plan)) * 2
    assert larger > MOST_USED * usable_gb(GPUS["A100-SXM-40GB"])


def test_few_tokens_are_better_than_none() -> None:
    plans = found("model=7B seq=512 batch=8", "H100-SXM", 8)
    assert {plan.micro_batch for plan in plans} == {1}


@pytest.mark.parametrize("line", ["type=serving model=7B", "model=7B seq=2048 batch=512 micro-batch=2"])
def test_what_was_asked_for_is_left_alone(line: str) -> None:
    work = parse(line)
    assert found(line, "H100-SXM", 8) == choices(work, GPUS["H100-SXM"], 8)


def test_a_run_that_fills_the_memory_is_kept() -> None:
    work = parse("model=70B seq=4096 batch=64 sharding=zero3 checkpointing=yes")
    full = [one for one in range(8, 200) if len(choices(work, GPUS["H100-SXM"], one)) and found_full(work, one)]
    assert full
    assert likely(work, shaped(work), GPUS["H100-SXM"], full[0]) == choices(work, GPUS["H100-SXM"], full[0])


def found_full(work: Workload, count: int) -> bool:
    (plan,) = choices(work, GPUS["H100-SXM"], count)
    used = sum(part.gb for part in parts(work, shaped(work), count, plan)) / usable_gb(GPUS["H100-SXM"])
    return MOST_USED < used <= 1 and plan.micro_batch == 1 and not plan.offload
