"""The times of one training token, by hand from the data sheets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing import throughput_fitted as fitted
from bot.rules.sizing.host_speed import HostSpeed
from bot.rules.sizing.optimizers import Optimizer
from bot.rules.sizing.throughput import predicted_s
from bot.rules.sizing.throughput_features import features
from bot.rules.sizing.training import (
    TERMS,
    flops_per_token,
    link_gb_s,
    machine,
    offload_s,
    optimizer_s,
    peak_flops,
    terms,
)
from bot.rules.sizing.vram import MemoryLayout
from bot.rules.sizing.workload import Architecture, Precision, Sharding, WorkKind, Workload, architecture
from providers.gpus.table import GPUS

ZERO1 = MemoryLayout(WorkKind.TRAINING, Sharding.ZERO1, False, 2)
H100, A100, RTX4090 = GPUS["H100-SXM"], GPUS["A100-SXM-80GB"], GPUS["RTX4090"]


def shaped(work: Workload) -> Architecture:
    found = architecture(work)
    assert found is not None
    return found


HAND = parse("layers=10 width=1280 heads=10 vocab=50000 seq=1000 batch=64 micro-batch=4 precision=amp_bf16")
BODY, HEAD = 12 * 10 * 1280**2, 50000 * 1280


def timed(work: Workload, count: int, plan: MemoryLayout) -> dict[str, float]:
    on = machine(A100, count, work.number_format)
    assert on is not None
    return dict(zip(TERMS, terms(work, shaped(work), on, count, plan, fitted.EXPONENTS), strict=True))


def test_the_terms_are_the_times_of_the_data_sheet() -> None:
    found = timed(HAND, 8, MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, False, 4))
    assert found["multiply"] == pytest.approx(6 * (BODY + HEAD) / 312e12)
    assert found["attention"] == pytest.approx(6 * 10 * 1280 * 1000 / (0.615 * 312e12))
    assert found["memory"] == found["mixed"] == pytest.approx(10 * 1280 / 2039e9)
    assert found["exchange"] == pytest.approx(8 * (BODY + HEAD) / 4000 / 300e9)
    assert found["network"] == found["waiting"] == 0


def test_recomputing_costs_a_third_more() -> None:
    plain = timed(HAND, 8, MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, False, 4))
    again = timed(HAND, 8, MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, True, 4))
    assert again["multiply"] - plain["multiply"] == pytest.approx(2 * BODY / 312e12)
    assert again["attention"] == pytest.approx(plain["attention"] * 4 / 3)


def test_what_gpus_exchange_depends_on_what_they_share() -> None:
    def sent(sharding: Sharding, count: int = 8, kind: WorkKind = WorkKind.TRAINING) -> float:
        return timed(HAND, count, MemoryLayout(kind, sharding, False, 4))["exchange"] * 4000 / (BODY + HEAD)

    assert sent(Sharding.ZERO3) == pytest.approx(8 / 300e9)
    assert sent(Sharding.ZERO2) == pytest.approx(6 / 300e9)
    # 64 sequences are two micro batches of four on eight GPUs, and gradients are reduced once.
    assert sent(Sharding.DDP) == pytest.approx(2 * 4 / 2 / 300e9 + 6 / 2039e9)
    assert sent(Sharding.ZERO1) == sent(Sharding.DDP)
    assert sent(Sharding.DDP, count=1) == sent(Sharding.ZERO3, count=1) == pytest.approx(6 / 2039e9)
    assert sent(Sharding.DDP, kind=WorkKind.LORA) == pytest.approx(2 / 2039e9)
    assert sent(Sharding.ZERO3, kind=WorkKind.LORA) == pytest.approx(4 / 300e9)


def test_pure_bf16_exchanges_less_and_fp32_more() -> None:
    plan = MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, False, 4)
    mixed = timed(HAND, 8, plan)
    pure = timed(replace(HAND, precision=Precision.BF16), 8, plan)
    wide = timed(replace(HAND, precision=Precision.FP32), 8, plan)
    assert pure["exchange"] == pytest.approx(mixed["exchange"] * 6 / 8)
    assert wide["exchange"] == pytest.approx(mixed["exchange"] * 12 / 8)
    assert pure["mixed"] == wide["mixed"] == 0
    assert wide["memory"] == pytest.approx(2 * mixed["memory"])


def test_machines_wait_for_each_other() -> None:
    found = timed(HAND, 32, MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, False, 4))
    assert found["waiting"] == pytest.approx(found["multiply"] * 2**fitted.EXPONENTS.waiting)
    assert found["network"] == pytest.approx(8 * (BODY + HEAD) / 4000 / 200e9)


def test_adapters_skip_the_gradients_of_the_weights() -> None:
    for checkpointing, per_weight in ((False, 4), (True, 6)):
        found = timed(HAND, 8, MemoryLayout(WorkKind.LORA, Sharding.DDP, checkpointing, 4))
        assert found["multiply"] == pytest.approx((per_weight * BODY + 4 * HEAD) / 312e12)


def test_tokens_travel_to_experts_and_weights_do_not() -> None:
    work = parse("model=qwen3-30b-a3b seq=4000 batch=64 micro-batch=1")
    shape = shaped(work)
    on = machine(H100, 8, work.number_format)
    assert on is not None
    plan = MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, False, 1)
    found = dict(zip(TERMS, terms(work, shape, on, 8, plan, fitted.EXPONENTS), strict=True))
    routed = 8 * 48 * 2048 * 8 * 7 / 8 / 450e9
    gathered = 8 * (shape.total_params - shape.expert_params) / 4000 / 450e9
    streamed = 6 * shape.expert_params / 8 / 4000 / 3350e9
    assert found["exchange"] == pytest.approx(routed + gathered + streamed)


def test_attainable_rates_differ_from_data_sheets() -> None:
    found = [machine(GPUS[name], 1, Precision.BF16) for name in ("A100-SXM-80GB", "RTX4090", "MI300X")]
    rates = [one.peak / 1e12 for one in found if one is not None]
    assert rates == pytest.approx([312, 165.2 * 1.36, 1307.4 * 0.59])


def test_an_optimizer_in_host_memory_costs_its_bytes() -> None:
    plan = MemoryLayout(WorkKind.TRAINING, Sharding.ZERO3, True, 4, offload=True)
    assert offload_s(HAND, shaped(HAND), 8, plan) == pytest.approx(16 * (BODY + HEAD) / 8 / 20e9 / 8 / 1000)
    assert offload_s(HAND, shaped(HAND), 8, replace(plan, offload=False)) == 0


@pytest.mark.parametrize(
    ("optimizer", "ms_per_1b"),
    [
        # arXiv:2110.02861, table 5, on V100 with its 900 GB/s: 16 ms less for 8-bit Adam, 17 for one 32-bit momentum.
        ("adamw-8bit", -13.3),
        ("sgd", -8.9),
        ("adafactor", -17.8),
        ("adamw", 0),
    ],
)
def test_an_optimizer_with_less_state_takes_less_time(optimizer: str, ms_per_1b: float) -> None:
    work = parse(f"params=1B layers=24 width=2048 vocab=1000 seq=1000 batch=8 optimizer={optimizer}")
    shape, on = shaped(work), machine(GPUS["V100-32GB"], 1, Precision.FP16)
    assert on is not None
    plan = MemoryLayout(WorkKind.TRAINING)
    found = optimizer_s(work, shape, on, 1, plan) * 8 * 1000 / shape.total_params * 1e9 * 1000
    assert found == pytest.approx(ms_per_1b, abs=0.1)
    shared = optimizer_s(work, shape, on, 8, replace(plan, sharding=Sharding.ZERO1)) * 1000
    assert shared * 1000 / shape.total_params * 1e9 == pytest.approx(ms_per_1b / 8, abs=0.1)
    assert optimizer_s(work, shape, on, 1, replace(plan, offload=True)) == 0
    assert optimizer_s(replace(work, kind=WorkKind.LORA), shape, on, 1, plan) == 0


def test_muon_multiplies_and_galore_decomposes() -> None:
    def more(optimizer: str, words: str, count: int) -> float:
        runs = [parse(f"{words} optimizer={one}") for one in ("adamw", optimizer)]
        times = [predicted_s(work, shaped(work), GPUS["H100-SXM"], count, ZERO1) for work in runs]
        assert None not in times
        return (times[1] or 0) / (times[0] or 1) - 1

    # kellerjordan.github.io/posts/muon: 0.7 % more FLOPs for NanoGPT with a batch of 0.5M tokens.
    work = parse("layers=12 width=768 heads=6 vocab=50304 seq=1024 batch=512 optimizer=muon")
    on = machine(GPUS["H100-SXM"], 8, Precision.AMP_BF16)
    assert on is not None
    plain = replace(work, optimizer=Optimizer.SGD)
    # Without the state: embeddings stay with AdamW, all else has one momentum as SGD has.
    step = optimizer_s(work, shaped(work), on, 8, ZERO1) - optimizer_s(plain, shaped(work), on, 8, ZERO1)
    body = 6 * shaped(work).body_params / on.peak
    assert 0.007 < step / body < 0.009
    small, large = (more("muon", f"model=7B seq=2048 batch={batch}", 8) for batch in (16, 4096))
    assert large < 0.01 < 0.1 < small
    # arXiv:2407.08296: 10 minutes for 7B every 200 steps: 3 s in each.
    assert more("galore", "model=7B seq=2048 batch=16", 8) > 1
    assert more("galore", "model=7B seq=2048 batch=4096", 8) < 0.05


def test_flops_of_a_token() -> None:
    attention = 12 * 10 * 1280 * 1000
    assert flops_per_token(HAND, shaped(HAND)) == 6 * (BODY + HEAD) + attention
    assert flops_per_token(replace(HAND, kind=WorkKind.LORA), shaped(HAND)) == 4 * (BODY + HEAD) + attention
    assert flops_per_token(replace(HAND, kind=WorkKind.BATCH), shaped(HAND)) == 2 * (BODY + HEAD) + attention / 3


@pytest.mark.parametrize(
    ("gpu", "precision", "tflops"),
    [
        ("H100-SXM", Precision.BF16, 989),
        ("H100-SXM", Precision.FP8, 1978),
        ("A100-SXM-80GB", Precision.FP8, 312),
        ("A100-SXM-80GB", Precision.TF32, 156),
        ("A100-SXM-80GB", Precision.FP32, 39),
    ],
)
def test_peaks_by_precision(gpu: str, precision: Precision, tflops: float) -> None:
    assert peak_flops(GPUS[gpu], precision) == pytest.approx(tflops * 1e12)


def test_links() -> None:
    assert link_gb_s(A100) == 300
    assert link_gb_s(RTX4090) == 32
    assert link_gb_s(GPUS["H100-PCIE"]) == 64
    slow, fast = (machine(gpu, 16, Precision.BF16) for gpu in (RTX4090, H100))
    assert slow is not None
    assert fast is not None
    assert (slow.network, fast.network) == (3.125e9, 400e9)
    held = machine(RTX4090, 16, Precision.BF16, HostSpeed(link=1, power=2))
    assert held is not None
    assert held.link == pytest.approx(slow.link / 2)
    assert held.peak / slow.peak == held.attention / slow.attention == pytest.approx(0.867, abs=0.001)
    assert held.memory == slow.memory


def test_narrow_heads_are_punished_once() -> None:
    """Heads of 64 slow attention down, and nothing else: neither another term nor an effect on top."""
    wide, narrow = (parse(f"layers=24 width=2048 heads={heads} vocab=50000 seq=2048 batch=512") for heads in (16, 32))
    times = [timed(work, 8, ZERO1) for work in (wide, narrow)]
    assert times[1].pop("attention") / times[0].pop("attention") == pytest.approx(2**fitted.EXPONENTS.head)
    assert times[1] == times[0]
    found = [features(work, shaped(work), A100, 8, ZERO1) for work in (wide, narrow)]
    assert found[1] == found[0]
    assert not any("head" in name for name in fitted.TRAINING_EFFECTS)
    # So a run is slower by no more than the share of its attention.
    rates = [1 / (predicted_s(work, shaped(work), A100, 8, ZERO1) or 1) for work in (wide, narrow)]
    attention = fitted.TRAINING_TERMS["attention"] * timed(wide, 8, ZERO1)["attention"] * rates[0]
    assert rates[0] / rates[1] == pytest.approx(1 + attention * (2**fitted.EXPONENTS.head - 1))
