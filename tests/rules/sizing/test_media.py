"""Models of images and sound: published times and sizes lie where they are estimated, and what is asked must fit."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.media_models import MEDIA, media_model
from bot.rules.sizing.run_time import checkpoint_gb, finished_run, run_time
from bot.rules.sizing.throughput import Throughput, tokens_per_s
from bot.rules.sizing.unsaid import assumed, unknown
from bot.rules.sizing.vram import fit
from bot.rules.sizing.workload import Precision, WorkKind
from bot.rules.values.bad_word import BadWord
from bot.rules.viability.host import host_gb, run_disk
from providers.gpus.table import GPUS


def rate(words: str, gpu: str, count: int = 1) -> Throughput:
    found = tokens_per_s(parse(words), GPUS[gpu], count)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("words", "gpu", "per_s"),
    [
        # Hugging Face dataset diffusers/benchmarks, one pass without and with compilation, on L40S.
        ("model=FLUX.1-dev image-steps=1", "L40S", 1 / 0.535),
        ("model=FLUX.1-dev image-steps=1", "L40S", 1 / 0.382),
        ("model=sdxl image-steps=1", "L40S", 1 / (2 * 0.074)),
        ("model=sdxl image-steps=1", "L40S", 1 / (2 * 0.055)),
        # pytorch.org/blog/accelerating-generative-ai-3: 30 steps with bf16 and fused attention, and compiled.
        ("model=sdxl image-steps=30", "A100-SXM-80GB", 1 / 3.31),
        # replicate.com/blog/flux-is-fast-and-open-source: 28 steps in 8 bits.
        ("model=FLUX.1-dev precision=fp8", "H100-SXM", 1 / 3.03),
        # Vaibhavs10/insanely-fast-whisper, README: 150 minutes in 98 s.
        ("model=whisper-large-v3 concurrency=24", "A100-SXM-80GB", 9000 / 98),
        # SYSTRAN/faster-whisper, README: 13 minutes in 17 s on RTX 3070 Ti, whose rates lie between these two.
        ("model=whisper-large-v3 concurrency=8", "RTX3070", 780 / 17),
        ("model=whisper-large-v3 concurrency=8", "RTX3080", 780 / 17),
    ],
)
def test_a_published_rate_lies_in_the_range(words: str, gpu: str, per_s: float) -> None:
    found = rate(words, gpu)
    assert found.low <= per_s <= found.high
    assert found.expected / 2 < per_s < found.expected * 2


@pytest.mark.parametrize(
    ("words", "gpu", "gb"),
    [
        # SDXL in 16 bits, four images at once: 21.7 GB (huggingface.co/blog/simple_sdxl_optimizations).
        ("model=sdxl concurrency=4", "A100-SXM-40GB", 21.7),
        # faster-whisper, README: 6,090 MB with 8 windows at once.
        ("model=whisper-large-v3 concurrency=8", "RTX3070", 5.95),
        # FLUX.1-dev: 24 GB of network and 10 of text encoders; about 33 GB are published for all of it on the GPU.
        ("model=FLUX.1-dev", "A6000", 34.5),
    ],
)
def test_memory_is_as_published(words: str, gpu: str, gb: float) -> None:
    assert fit(parse(words), GPUS[gpu], 1).needs_gb == pytest.approx(gb, rel=0.06)


def test_names_are_spelled_in_many_ways() -> None:
    for text in ("black-forest-labs/FLUX.1-dev", "flux.1-dev", "FLUX-dev"):
        assert media_model(text) is MEDIA["flux.1-dev"]
    assert media_model("stabilityai/stable-diffusion-xl-base-1.0") is MEDIA["sdxl"]
    assert media_model("openai/whisper-large-v3") is MEDIA["whisper-large-v3"]
    assert media_model("FLUX.1-schnell") is MEDIA["flux.1-schnell"]
    assert media_model("llama-3-8b") is None


def test_work_is_counted_in_what_the_model_makes() -> None:
    images, sound = parse("model=flux.1-dev images=10k"), parse("model=whisper-large-v3 audio-hours=2")
    assert (images.kind, images.total_tokens, images.number_format) == (WorkKind.BATCH, 10_000, Precision.BF16)
    assert (sound.total_tokens, sound.number_format) == (7200, Precision.FP16)
    found = run_time(images, "L40S", 2, Decimal(1))
    assert found.known
    assert found.throughput is not None
    assert found.throughput.unit == "images"
    assert float(found.hours.median) == pytest.approx(10_000 / found.throughput.expected / 3600, rel=1e-5)
    assert found.throughput.sentence.startswith("0.12 images/s on 2 L40S")
    assert "audio seconds/s" in rate("model=whisper-large-v3", "T4").sentence


def test_what_is_missing_and_assumed_is_said() -> None:
    assert unknown(parse("model=sdxl")) == ("How many images there are was not said; write images=10000.",)
    assert unknown(parse("model=sdxl images=5")) == ()
    assert unknown(parse("model=whisper-large-v3")) == (
        "How many seconds of audio are read was not said; write audio-hours=100.",
    )
    assert assumed(parse("model=sdxl precision=fp16")) == (
        "Images of 1024 x 1024 are assumed; write resolution=768.",
        "50 steps for each image are assumed; write image-steps=20.",
    )
    assert assumed(parse("model=sdxl type=lora resolution=512")) == ("amp_bf16 is assumed.",)
    assert assumed(parse("model=whisper-large-v3")) == ("fp16 is assumed.", "16 windows of 30 s are read at once.")


def test_more_work_takes_longer_and_more_gpus_less() -> None:
    one = rate("model=FLUX.1-dev", "L40S").expected
    assert rate("model=FLUX.1-dev", "L40S", 4).expected == pytest.approx(4 * one)
    assert rate("model=FLUX.1-dev resolution=512", "L40S").expected == pytest.approx(4 * one)
    assert rate("model=FLUX.1-dev image-steps=56", "L40S").expected == pytest.approx(one / 2)
    assert rate("model=FLUX.1-schnell", "L40S").expected == pytest.approx(7 * one)
    sound = [rate(f"model=whisper-large-v3 concurrency={several}", "L4").expected for several in (1, 8, 16)]
    assert sound == sorted(sound)


def test_adapters_of_an_image_model_are_estimated_with_a_wide_range() -> None:
    whole = parse("model=FLUX.1-dev type=lora images=1000")
    assert fit(whole, GPUS["L40S"], 1).possible
    assert not fit(whole, GPUS["RTX4090"], 1).possible
    short = parse("model=FLUX.1-dev type=qlora images=1000")
    assert fit(short, GPUS["RTX4090"], 1).possible
    found = rate("model=FLUX.1-dev type=lora checkpointing=no batch=1", "H100-SXM")
    again = rate("model=FLUX.1-dev type=lora checkpointing=yes batch=1", "H100-SXM")
    assert found.expected == pytest.approx(1.5 * again.expected)
    assert found.high / found.low > 4
    assert 0 < checkpoint_gb(whole) < 3


@pytest.mark.parametrize(
    "words", ["model=sdxl type=finetune", "model=flux.1-dev type=train", "model=whisper-large-v3 type=lora"]
)
def test_what_cannot_be_estimated_is_refused(words: str) -> None:
    with pytest.raises(BadWord, match="can be planned with type=batch"):
        parse(words)


def test_disk_and_host_hold_all_networks() -> None:
    work = parse("model=FLUX.1-dev images=100")
    assert float(run_disk(work).weights) == pytest.approx(33.7, abs=0.1)
    assert run_disk(work).whole_gb == 54
    assert float(host_gb(work, fit(work, GPUS["L40S"], 1).plan, 1)) == pytest.approx(14, abs=0.1)


def test_a_gpu_without_a_published_rate_has_none() -> None:
    assert tokens_per_s(parse("model=sdxl"), GPUS["K80"], 1) is None
    with pytest.raises(ValueError, match="not learned from your runs"):
        finished_run(parse("model=sdxl images=5"), "L40S", 1, Decimal(1))
