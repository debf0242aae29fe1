"""Serving: published rates of vLLM with many sequences and prompts, copies of a model, and what must hold for each."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from statistics import median

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.run_time import run_time
from bot.rules.sizing.throughput import Throughput, tokens_per_s
from bot.rules.sizing.unsaid import assumed, unknown
from providers.gpus.table import GPUS

#: Words, GPU, GPUs, generated tokens per second. Sources, all with vLLM: mushfiqrahman.dev/?p=1668 (300 prompts of 256,
#: about 100 tokens generated); databasemart.com, "A40 vLLM Benchmark" (50 requests of 100 and up to 600 tokens);
#: johnmusgrave.com/p/vllm-throughput-latency-sweep-on; LambdaLabsML/vllm-benchmark, benchmark_v0.md (ShareGPT, v0.6.0
#: with ten scheduler steps, at most 256 sequences: prompts of about 215 and answers of about 180 tokens).
PUBLISHED = (
    *(
        (f"model=mistral-7b prompt-tokens=256 output-tokens=100 concurrency={at_once}", "RTX4090", 1, rate)
        for at_once, rate in ((4, 210), (8, 377), (16, 644), (32, 975), (48, 1190))
    ),
    ("model=llama-3.1-8b prompt-tokens=100 output-tokens=443 concurrency=50", "A40", 1, 1017),
    ("model=llama-3.1-8b prompt-tokens=100 output-tokens=550 concurrency=50", "A40", 1, 1156),
    ("model=qwen2.5-7b prompt-tokens=100 output-tokens=514 concurrency=50", "A40", 1, 1095),
    ("model=qwen2.5-14b prompt-tokens=100 output-tokens=426 concurrency=50", "A40", 1, 530),
    ("model=llama-3.1-8b prompt-tokens=1024 output-tokens=128 concurrency=8", "A100-SXM-40GB", 1, 495),
    ("model=llama-3.1-8b prompt-tokens=215 output-tokens=180 concurrency=256", "H100-SXM", 1, 8088),
    ("model=llama-3.1-70b prompt-tokens=215 output-tokens=180 concurrency=256", "H100-SXM", 4, 3543),
    ("model=llama-3.1-405b precision=fp8 prompt-tokens=215 output-tokens=180 concurrency=256", "H100-SXM", 8, 1714),
)


def served(words: str, gpu: str = "H100-SXM", count: int = 1) -> Throughput:
    found = tokens_per_s(parse(f"type=serving {words}"), GPUS[gpu], count)
    assert found is not None
    return found


def test_published_rates_with_many_sequences_lie_in_the_range() -> None:
    found = [(served(words, gpu, count), rate) for words, gpu, count, rate in PUBLISHED]
    assert sum(one.low <= rate <= one.high for one, rate in found) >= 0.8 * len(found)
    assert median(abs(math.log(one.expected / rate)) for one, rate in found) < 0.2


def test_a_prompt_takes_time_and_a_longer_one_takes_more() -> None:
    answer = "model=llama-3.1-8b output-tokens=200 concurrency=64"
    rates = [served(f"{answer} prompt-tokens={prompt}").expected for prompt in (1, 500, 2000, 8000)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0] / 3
    plain = served("model=llama-3.1-8b concurrency=64 seq=201").expected
    assert served("model=llama-3.1-8b concurrency=64 seq=201 prompt-tokens=9").expected == plain


def test_more_sequences_bring_more_until_the_memory_ends() -> None:
    rates = [served(f"model=llama-3.1-8b seq=1024 concurrency={count}").expected for count in (1, 4, 16, 64, 256)]
    assert rates == sorted(rates)
    assert served("model=llama-3.1-8b seq=1024").expected == pytest.approx(rates[-1])
    long, short = served("model=llama-3.1-8b seq=131072"), served("model=llama-3.1-8b seq=1024")
    assert long.expected < short.expected / 10


def test_copies_of_a_small_model_share_the_gpus() -> None:
    one, eight = served("model=llama-3.1-8b seq=1024"), served("model=llama-3.1-8b seq=1024", count=8)
    assert (one.replicas, eight.replicas) == (1, 8)
    assert eight.expected == pytest.approx(8 * one.expected)
    assert eight.low == pytest.approx(8 * one.low)
    assert eight.high == pytest.approx(8 * one.high)
    assert eight.mfu == pytest.approx(one.mfu)
    assert eight.basis.endswith("8 copies of the model share the GPUs.")
    assert "on 8 H100-SXM" in eight.sentence


def test_a_model_too_large_for_one_gpu_has_as_many_copies_as_fit() -> None:
    found = served("model=llama-3.1-70b seq=1024", count=8)
    assert found.replicas in (2, 4)
    alone = tokens_per_s(parse("type=serving model=llama-3.1-70b seq=1024"), GPUS["H100-SXM"], 8 // found.replicas)
    assert alone is not None
    assert found.expected == pytest.approx(found.replicas * alone.expected)
    assert served("model=llama-3.1-405b precision=fp8 seq=1024", count=8).replicas == 1


def test_one_sequence_has_one_copy_on_all_gpus() -> None:
    assert served("model=llama-3.1-8b concurrency=1", count=8).replicas == 1
    assert served("model=llama-3.1-8b concurrency=3", "L40S", 4).replicas <= 3
    assert served("model=llama-3.1-8b concurrency=64", count=3).replicas in (1, 3)


def test_the_memory_of_a_copy_is_what_the_plan_shows() -> None:
    found = run_time(parse("type=serving model=llama-3.1-8b seq=1024 tokens=1B"), "H100-SXM", 8, Decimal(1))
    assert found.fit is not None
    assert "on 1 H100-SXM" in found.fit.sentence


def test_what_is_assumed_and_what_is_missing_is_said() -> None:
    work = parse("type=serving model=llama-3.1-8b tokens=1B")
    said = " ".join(assumed(work))
    assert "at most 256" in said
    assert "write prompt-tokens=1000 output-tokens=200" in said
    both = replace(work, prompt_tokens=1000, output_tokens=200)
    assert both.sequence == 1200
    assert "prompt-tokens" not in " ".join(assumed(both))
    assert unknown(both) == ()
    assert unknown(replace(work, prompt_tokens=1000)) == (
        "How many tokens follow a prompt was not said; write output-tokens=200.",
    )
    trained = parse("model=7B tokens=1B prompt-tokens=10 output-tokens=10")
    assert trained.sequence == 2048
    assert "belong to type=serving" in unknown(trained)[0]
