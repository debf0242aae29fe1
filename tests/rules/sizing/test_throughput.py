"""Throughput: against published rates, and what must hold for every run."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.work_words import parse
from bot.rules.sizing import decoding
from bot.rules.sizing import throughput_data as table
from bot.rules.sizing import throughput_fitted as fitted
from bot.rules.sizing.decoding import touched
from bot.rules.sizing.groups import Group
from bot.rules.sizing.throughput import (
    FinishedRun,
    Throughput,
    missing,
    posterior,
    predicted_s,
    run_hours,
    say,
    tokens_per_s,
)
from bot.rules.sizing.throughput_features import DECODING_FEATURES, TRAINING_FEATURES
from bot.rules.sizing.training import TERMS, machine
from bot.rules.sizing.vram import MemoryLayout, fit
from bot.rules.sizing.workload import Architecture, Precision, Sharding, WorkKind, Workload, architecture
from providers.gpus.table import GPUS

H100 = GPUS["H100-SXM"]


def shaped(work: Workload) -> Architecture:
    found = architecture(work)
    assert found is not None
    return found


def rate(line: str, gpu: str, count: int = 1) -> Throughput:
    found = tokens_per_s(parse(line), GPUS[gpu], count)
    assert found is not None
    return found


# ── published rates ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "gpu", "count", "tokens_s"),
    [
        (
            "type=serving model=llama-2-7b seq=200 concurrency=1 stack=gpt-fast",
            "A100-SXM-80GB",
            1,
            104.9,
        ),
        ("type=serving model=llama-2-7b seq=512 concurrency=1 precision=int4 stack=exllama", "RTX4090", 1, 173.0),
        ("type=serving model=llama-2-7b seq=1024 concurrency=1 precision=bf16 stack=llama.cpp", "RTX4090", 1, 60.8),
        ("model=llama-3-8b seq=8192 batch=16 precision=amp_bf16 stack=torchtitan", "H100-SXM", 8, 8 * 6667.0),
        ("model=llama-3-70b seq=8192 batch=256 precision=fp8 stack=megatron", "GB200", 64, 64 * 4224.0),
        ("model=qwen3-235b-a22b seq=4096 batch=8192 precision=fp8 stack=megatron", "H100-SXM", 256, 256 * 1712.0),
        ("type=lora model=llama-2-7b seq=2048 batch=8 stack=fsdp-qlora", "RTX4090", 2, 4799.0),
    ],
)
def test_published_rates_of_known_stacks_lie_in_the_range(line: str, gpu: str, count: int, tokens_s: float) -> None:
    found = rate(line, gpu, count)
    assert found.low <= tokens_s <= found.high


def test_every_table_row_names_a_known_gpu() -> None:
    assert set(table.NVLINK_GB_S) | set(table.ATTAINABLE) | set(fitted.GPUS) <= set(GPUS)
    assert set(fitted.TRAINING_TERMS) == set(TERMS)
    assert set(fitted.DECODING_TERMS) == set(decoding.TERMS)
    assert set(fitted.TRAINING_EFFECTS) == set(TRAINING_FEATURES)
    assert set(fitted.DECODING_EFFECTS) == set(DECODING_FEATURES)
    assert set(fitted.SPREADS) == set(Group)
    assert min(*fitted.TRAINING_TERMS.values(), *fitted.DECODING_TERMS.values()) > 0
    assert all(spread.known_stack <= spread.other_stack for spread in fitted.SPREADS.values())


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_says_what_it_rests_on() -> None:
    found = rate("model=7B seq=2048 batch=512", "H100-SXM", 8)
    assert found.low < found.expected < found.high
    assert 0.2 < found.mfu < 0.7
    assert found.sentence.startswith(f"{say(found.expected)} tokens/s on 8 H100-SXM (")
    assert found.basis.endswith("this GPU among them; the training stack is not known.")
    known = rate("model=7B seq=2048 batch=512 stack=llm-foundry", "H100-SXM", 8)
    assert known.expected == pytest.approx(found.expected * math.exp(fitted.TRAINING_STACKS["llm-foundry"]))
    assert known.sigma == fitted.OWN_SPREADS["llm-foundry"] < found.sigma
    assert known.basis.endswith("among them.")


def test_doubts_widen_the_range() -> None:
    sure = rate("model=1B seq=2048 stack=llm-foundry", "A100-SXM-80GB", 8)
    stack = rate("model=1B seq=2048 stack=torchtitan", "A100-SXM-80GB", 8)
    other = rate("model=1B seq=2048", "A100-SXM-80GB", 8)
    newer = rate("model=1B seq=2048", "B200", 8)
    alone, linked = rate("model=1B seq=2048", "A40"), rate("model=1B seq=2048", "A40", 8)
    away = rate("model=7B seq=2048", "RTX4090")
    assert sure.sigma < stack.sigma < other.sigma < newer.sigma < alone.sigma < linked.sigma < away.sigma
    assert "this GPU among them" in newer.basis
    assert "carried over to A40" in alone.basis


def test_known_stacks_count() -> None:
    base = rate("model=llama-3-8b seq=8192 stack=llm-foundry", "H100-SXM", 8)
    slower = rate("model=llama-3-8b seq=8192 stack=torchtitan", "H100-SXM", 8)
    apart = fitted.TRAINING_STACKS["torchtitan"] - fitted.TRAINING_STACKS["llm-foundry"]
    assert slower.expected == pytest.approx(base.expected * math.exp(apart))


def test_a_stack_counts_on_hardware_like_that_it_was_measured_on() -> None:
    servers = rate("model=1B seq=2048 stack=megatron", "H100-SXM")
    cards, plain = (rate(f"model=1B seq=2048 {stack}", "RTX4090") for stack in ("stack=megatron", ""))
    assert "not known" not in servers.basis
    assert (cards.expected, cards.sigma) == (plain.expected, plain.sigma)
    assert cards.basis.endswith("the training stack is not known.")


def test_four_bit_weights_slow_training_down() -> None:
    half = rate("model=7B type=lora seq=512 checkpointing=yes batch=1", "A100-SXM-80GB")
    quarter = rate("model=7B type=qlora seq=512 checkpointing=yes batch=1", "A100-SXM-80GB")
    apart = fitted.TRAINING_EFFECTS["qlora"] - fitted.TRAINING_EFFECTS["lora"]
    assert quarter.expected == pytest.approx(half.expected * math.exp(apart))
    assert quarter.expected < half.expected


def test_no_run_multiplies_faster_than_matrices_alone() -> None:
    found = rate("model=7B seq=4096 batch=512 stack=megatron", "A100-SXM-80GB", 8)
    assert found.mfu == pytest.approx(table.MOST_OF_PEAK)


def test_wide_memory_does_not_beat_fast_multiplication() -> None:
    """MI300X has 1.6 times the bandwidth of H100 and more on its data sheet, and is not estimated far above it."""
    h100, mi300x = (rate("model=7B seq=4096 batch=512", name, 8) for name in ("H100-SXM", "MI300X"))
    assert mi300x.expected < 1.1 * h100.expected


def test_a_mixture_is_slower_than_its_active_parameters_alone() -> None:
    dense = rate("model=3B seq=4096 batch=512", "H100-SXM", 64)
    mixture = rate("model=30B-A3B seq=4096 batch=512", "H100-SXM", 64)
    assert dense.expected / 10 < mixture.expected < dense.expected / 2


def test_serving_says_nothing_of_the_peak() -> None:
    found = rate("model=llama-3-8b type=serving concurrency=1", "RTX4090")
    assert found.sentence.endswith(").")
    assert found.basis.startswith(f"Fitted on {fitted.ROWS[False]} published generation rates, this GPU among them")
    assert rate("model=llama-3-8b type=serving concurrency=8", "RTX4090").expected > 4 * found.expected


def test_more_sequences_wake_more_experts() -> None:
    shape = shaped(parse("model=mixtral-8x7b"))
    one, two, many = (touched(shape, at_once) for at_once in (1, 2, 64))
    assert one == pytest.approx(shape.matmul_params)
    assert one < two < many <= shape.total_params
    dense = shaped(parse("layers=2 width=64 heads=1 vocab=100"))
    assert touched(dense, 5) == dense.total_params


@pytest.mark.parametrize(
    ("line", "gpu", "sentence"),
    [
        ("tokens=1B", "H100-SXM", "The model's size was not said; write it as model=7B."),
        ("model=7B", "K80", "No peak rate of K80 is published, so its throughput is not estimated."),
    ],
)
def test_nothing_is_invented(line: str, gpu: str, sentence: str) -> None:
    assert missing(parse(line), GPUS[gpu]) == sentence
    assert tokens_per_s(parse(line), GPUS[gpu], 1) is None
    assert run_hours(parse(line), None) is None


def test_a_gpu_without_a_data_sheet_has_no_time() -> None:
    work = parse("model=7B")
    assert predicted_s(work, shaped(work), GPUS["K80"], 1, MemoryLayout(WorkKind.TRAINING)) is None
    assert machine(GPUS["K80"], 1, Precision.BF16) is None
    blind = replace(H100, bandwidth_gb_s=None)
    assert machine(blind, 1, Precision.BF16) is None
    assert missing(work, blind) is not None


def test_a_given_layout_is_used_and_the_fastest_without_one() -> None:
    work = parse("model=7B seq=512 batch=1536")
    layout = fit(work, GPUS["A100-SXM-40GB"], 8)
    given = tokens_per_s(work, GPUS["A100-SXM-40GB"], 8, layout=layout)
    free = tokens_per_s(work, GPUS["A100-SXM-40GB"], 8)
    assert given is not None
    assert free is not None
    assert given.plan == layout.plan
    assert given.expected <= free.expected


@pytest.mark.parametrize(
    ("number", "text"),
    [(123_456, "123,000"), (1_234, "1,230"), (850.4, "850"), (12, "12"), (4.23, "4.2"), (0.0123, "0.012")],
)
def test_rates_read_with_three_digits(number: float, text: str) -> None:
    assert say(number) == text


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


def test_hours_follow_from_tokens() -> None:
    work = parse("model=7B tokens=2B seq=2048 batch=512")
    found = tokens_per_s(work, H100, 8)
    hours = run_hours(work, found)
    assert found is not None
    assert hours is not None
    assert float(hours.median) == pytest.approx(2e9 / found.expected / 3600)
    # The mean of a lognormal time is above its median.
    assert float(hours.expected / hours.median) == pytest.approx(math.exp(found.sigma**2 / 2))
    assert hours.median < hours.expected < hours.worst
    assert run_hours(parse("model=7B"), found) is None


def test_a_century_is_no_forecast() -> None:
    work = parse("model=405B tokens=15T seq=8192")
    assert run_hours(work, tokens_per_s(work, GPUS["T4"], 1)) is None


# ── own runs ─────────────────────────────────────────────────────────────────────────────────────


def finished(gpu: str, stack: str | None, ratio: float) -> FinishedRun:
    return FinishedRun(gpu, stack, 1000.0, 1000.0 * ratio)


def test_own_runs_correct_the_estimate() -> None:
    work = parse("model=7B seq=2048 stack=ours")
    base = tokens_per_s(work, H100, 8)
    corrected = tokens_per_s(work, H100, 8, runs=[finished("H100-SXM", "ours", 0.8)] * 5)
    assert base is not None
    assert corrected is not None
    assert corrected.expected == pytest.approx(0.8 * base.expected, rel=0.02)
    assert corrected.sigma < base.sigma
    assert "corrected by 5 runs of this installation" in corrected.basis


def test_runs_on_another_gpu_count_less_and_other_stacks_nothing() -> None:
    prior = 0.2
    same, *_ = posterior("H100-SXM", "ours", [finished("H100-SXM", "ours", 0.8)], prior)
    other, *_ = posterior("H100-SXM", "ours", [finished("RTX4090", "ours", 0.8)], prior)
    assert math.log(0.8) < same < other < 0
    assert posterior("H100-SXM", "ours", [finished("H100-SXM", "theirs", 0.8)], prior) == (0, prior, 0)


@pytest.mark.parametrize("measured", [0.0, -1.0, math.inf, math.nan])
def test_unusable_runs_say_nothing(measured: float) -> None:
    for run in (FinishedRun("H100-SXM", None, 1000.0, measured), FinishedRun("H100-SXM", None, measured, 1000.0)):
        assert posterior("H100-SXM", None, [run], 0.2) == (0, 0.2, 0)


def test_the_spread_between_hosts_stays() -> None:
    runs = [finished("H100-SXM", None, 1.0)] * 10_000
    assert posterior("H100-SXM", None, runs, 0.2)[1] == table.SPREAD_HOST


@given(st.lists(st.floats(0.2, 5), max_size=20), st.floats(0.05, 0.5))
def test_the_correction_lies_between_the_prior_and_the_runs(ratios: list[float], prior: float) -> None:
    mean, sigma, used = posterior("T4", "x", [finished("T4", "x", ratio) for ratio in ratios], prior)
    logs = [0.0, *(math.log(ratio) for ratio in ratios)]
    assert min(logs) - 1e-9 <= mean <= max(logs) + 1e-9
    assert 0 < sigma <= prior
    assert used == len(ratios)


# ── properties ───────────────────────────────────────────────────────────────────────────────────

WORK = st.builds(
    Workload,
    kind=st.sampled_from(WorkKind),
    total_params=st.integers(10**7, 5 * 10**11),
    seq=st.sampled_from([128, 2048, 65536]),
    global_batch=st.integers(1, 512),
    tokens=st.integers(1, 10**12),
    precision=st.none() | st.sampled_from(Precision),
    sharding=st.none() | st.sampled_from(Sharding),
    checkpointing=st.none() | st.booleans(),
    concurrency=st.none() | st.integers(1, 64),
    stack=st.none() | st.sampled_from(["torchtitan", "other"]),
)
KNOWN = sorted(name for name, gpu in GPUS.items() if gpu.peak_bf16_tflops is not None)


@given(WORK, st.sampled_from(KNOWN), st.sampled_from([1, 2, 8, 16, 512]))
def test_every_answer_is_a_range_of_usable_numbers(work: Workload, name: str, count: int) -> None:
    found = tokens_per_s(work, GPUS[name], count)
    assert found is not None
    assert 0 < found.low < found.expected < found.high < math.inf
    assert found.mfu > 0


@given(WORK, st.sampled_from(KNOWN), st.integers(2, 10))
def test_more_tokens_never_take_less_time(work: Workload, name: str, factor: int) -> None:
    found = tokens_per_s(work, GPUS[name], 8)
    assert work.tokens is not None
    less, more = run_hours(work, found), run_hours(replace(work, tokens=work.tokens * factor), found)
    if less is not None and more is not None:
        assert less.median <= more.median
        assert less.expected <= more.expected
        assert less.worst <= more.worst
        assert Decimal(0) <= less.median <= less.expected <= less.worst


@given(WORK, st.sampled_from(KNOWN), st.integers(2, 4))
def test_a_larger_model_is_never_faster_in_the_same_layout(work: Workload, name: str, factor: int) -> None:
    assert work.total_params is not None
    training = replace(work, kind=WorkKind.TRAINING)
    larger = replace(training, total_params=work.total_params * factor)
    plan = MemoryLayout(WorkKind.TRAINING, work.sharding or Sharding.ZERO3, bool(work.checkpointing), 1)
    times = [predicted_s(one, shaped(one), GPUS[name], 8, plan) for one in (training, larger)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0] <= times[1] * 1.000001


@given(WORK, st.sampled_from(KNOWN), st.floats(1, 4))
def test_a_faster_gpu_is_never_slower_in_the_same_layout(work: Workload, name: str, factor: float) -> None:
    training = replace(work, kind=WorkKind.TRAINING)
    gpu = GPUS[name]
    assert gpu.peak_bf16_tflops is not None
    faster = replace(gpu, peak_bf16_tflops=gpu.peak_bf16_tflops * Decimal(factor))
    plan = MemoryLayout(WorkKind.TRAINING, work.sharding or Sharding.ZERO3, bool(work.checkpointing), 1)
    slow, fast = (predicted_s(training, shaped(training), one, 8, plan) for one in (gpu, faster))
    assert slow is not None
    assert fast is not None
    assert fast <= slow * 1.000001
