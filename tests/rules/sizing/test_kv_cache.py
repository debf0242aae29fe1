"""Keys, values and weights of models that keep fewer of them: published sizes, and where those models then run."""

from __future__ import annotations

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.decoding import terms
from bot.rules.sizing.run_time import weights_gb
from bot.rules.sizing.throughput import tokens_per_s
from bot.rules.sizing.vram import GIB, MemoryLayout, fit, kv_bytes, stored_bytes
from bot.rules.sizing.workload import Architecture, Precision, WorkKind, architecture
from bot.rules.viability.host import run_disk
from bot.rules.viability.obstacles import Obstacle
from bot.rules.viability.precision import unable
from providers.gpus.table import GPUS


def shape_of(name: str) -> Architecture:
    found = architecture(parse(f"model={name}"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [
        # arXiv:2505.09343, table 1: 70.272, 327.680 and 516.096 KB a token in 16 bits.
        ("deepseek-v3", 70.272),
        ("deepseek-r1", 70.272),
        ("qwen2.5-72b", 327.680),
        ("llama-3.1-405b", 516.096),
    ],
)
def test_a_token_leaves_what_was_published(name: str, kilobytes: float) -> None:
    assert kv_bytes(shape_of(name), 1) / 1000 == kilobytes


def test_a_local_layer_keeps_its_window_only() -> None:
    # Gemma 3 27B (arXiv:2503.19786): five layers with a window of 1,024 for each one that sees everything.
    shape = shape_of("gemma-3-27b")
    each = 2 * 2 * 16 * 128
    assert (shape.layers, shape.local_layers, shape.window) == (62, 52, 1024)
    assert kv_bytes(shape, 1024) == each * 62 * 1024
    assert kv_bytes(shape, 32_768) == each * (10 * 32_768 + 52 * 1024)
    # Its paper, figure 5: without windows most of the memory at 32K is cache; with them less than a fifth is.
    assert kv_bytes(shape, 32_768) < 0.2 * each * 62 * 32_768
    # gpt-oss (arXiv:2508.10925): every second layer has a window of 128.
    small = shape_of("gpt-oss-20b")
    assert kv_bytes(small, 4096) == 2 * 2 * 8 * 64 * (12 * 4096 + 12 * 128)


def test_every_gpu_keeps_a_whole_latent_vector() -> None:
    assert kv_bytes(shape_of("deepseek-v3"), 100, 8) == 8 * kv_bytes(shape_of("deepseek-v3"), 100)
    assert kv_bytes(shape_of("llama-3-70b"), 100, 8) == kv_bytes(shape_of("llama-3-70b"), 100)


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_weights_of_gpt_oss_have_the_published_size(name: str, gib: float) -> None:
    # arXiv:2508.10925, table 1: the size of the checkpoints, biases included.
    shape = shape_of(name)
    assert shape.stored is Precision.MXFP4
    assert stored_bytes(shape, Precision.MXFP4) / GIB == pytest.approx(gib, abs=0.15)
    assert float(weights_gb(shape)) == pytest.approx(gib * GIB / 1e9, rel=0.005)
    assert run_disk(parse(f"type=serving model={name}")).weights == weights_gb(shape)


@pytest.mark.parametrize(
    ("name", "gpu", "count", "fits"),
    [
        # The model card: 120b on one GPU of 80 GB, 20b within 16 GB.
        ("gpt-oss-120b", "H100-SXM", 1, True),
        ("gpt-oss-120b", "MI300X", 1, True),
        ("gpt-oss-120b", "A6000", 1, False),
        ("gpt-oss-20b", "RTX4080", 1, True),
        ("gpt-oss-20b", "RTX3060", 1, False),
        # DeepSeek's own example of SGLang: eight H200; eight H100 have too little memory for 671 GB.
        ("deepseek-v3", "H200", 8, True),
        ("deepseek-v3", "H100-SXM", 8, False),
    ],
)
def test_it_is_served_where_its_makers_say(name: str, gpu: str, count: int, *, fits: bool) -> None:
    work = parse(f"type=serving model={name} seq=8192 concurrency=4")
    assert fit(work, GPUS[gpu], count).possible is fits


def test_the_format_of_the_weights_is_assumed_for_serving_alone() -> None:
    assert parse("type=serving model=gpt-oss-20b").number_format is Precision.MXFP4
    assert parse("type=serving model=deepseek-v3").number_format is Precision.FP8
    assert parse("type=serving model=deepseek-v3 precision=bf16").number_format is Precision.BF16
    assert parse("type=serving model=llama-3-8b").number_format is Precision.BF16
    assert parse("type=serving model=unheard-of").number_format is Precision.BF16
    assert parse("type=lora model=gpt-oss-20b").number_format is Precision.AMP_BF16


def test_a_gpu_without_code_for_the_format_is_refused() -> None:
    served = parse("type=serving model=gpt-oss-20b")
    assert unable(served, GPUS["T4"].compute_capability, None) is Obstacle.QUANTIZED
    assert unable(served, GPUS["RTX3090"].compute_capability, None) is None
    assert unable(served, None, "CDNA2") is Obstacle.QUANTIZED
    assert unable(served, None, "CDNA3") is None
    trained = parse("model=gpt-oss-20b precision=mxfp4")
    assert unable(trained, GPUS["H100-SXM"].compute_capability, None) is Obstacle.INTEGERS


def test_a_step_reads_short_experts_and_long_attention() -> None:
    work, shape = parse("type=serving model=gpt-oss-120b seq=2 concurrency=1"), shape_of("gpt-oss-120b")
    plan = MemoryLayout(WorkKind.SERVING, weights=Precision.MXFP4)
    gpu = GPUS["H100-SXM"]
    read = terms(work, shape, gpu, 1, plan, 1)["reading"] * float(gpu.bandwidth_gb_s or 0) * 1e9
    experts = 36 * 4 * 3 * 2880 * 2880
    expected = experts * 4.25 / 8 + 2 * (shape.matmul_params - experts) + kv_bytes(shape, 1)
    assert read == pytest.approx(expected)
    whole = terms(work, shape, gpu, 1, plan, 10**6)["reading"] * float(gpu.bandwidth_gb_s or 0) * 1e9
    assert whole == pytest.approx(stored_bytes(shape, Precision.MXFP4) + 10**6 * kv_bytes(shape, 1), rel=0.01)
    assert terms(parse("type=serving model=7B"), shape_of("llama-2-7b"), gpu, 1, plan, 1)["reading"] > 0


def test_a_smaller_cache_serves_more_sequences() -> None:
    # 4 MB a token would leave room for one sequence of this length on eight H200.
    found = tokens_per_s(parse("type=serving model=deepseek-r1 seq=8192"), GPUS["H200"], 8)
    assert found is not None
    assert found.expected > 800
