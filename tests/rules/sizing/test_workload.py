"""Workloads: what words say, what follows from them, and what stays unknown."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.work_words import WORK_KEYS, WORK_WORDS, parse, read
from bot.rules.sizing.data_source import DataSource
from bot.rules.sizing.model_shapes import MODELS
from bot.rules.sizing.unsaid import assumed, unknown
from bot.rules.sizing.workload import Precision, Sharding, WorkKind, Workload, architecture
from bot.rules.values.bad_word import BadWord
from bot.rules.values.text import UnclosedQuote

PLAN = "model=7B tokens=2B seq=2048 batch=512 precision=bf16 goal=24h"


def test_the_words_of_a_plan() -> None:
    work = parse(PLAN)
    assert (work.total_params, work.tokens, work.seq, work.global_batch) == (7 * 10**9, 2 * 10**9, 2048, 512)
    assert (work.precision, work.goal_hours, work.kind) == (Precision.BF16, Decimal(24), WorkKind.TRAINING)
    assert unknown(work) == ()


@pytest.mark.parametrize("word", WORK_WORDS, ids=lambda word: word.key)
def test_every_example_of_the_table_can_be_read(word: object) -> None:
    example = getattr(word, "example", "")
    assert parse(example) != Workload() or example == "type=training"


def test_every_alias_reads_like_its_word() -> None:
    for key, word in WORK_KEYS.items():
        value = word.example.partition("=")[2]
        assert read({key: value}) == read({word.key: value})


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("type=fine-tune", "kind", WorkKind.FINETUNE),
        ("type=inference", "kind", WorkKind.SERVING),
        ("precision=mixed", "precision", Precision.AMP_BF16),
        ("sharding=fsdp", "sharding", Sharding.ZERO3),
        ("checkpointing=no", "checkpointing", False),
        ("model=30B-A3B", "active_params", 3 * 10**9),
        ("model=1.3b", "total_params", 1_300_000_000),
        ("model=llama-3-8b", "model", "llama-3-8b"),
        ("checkpoint-size=1TB", "checkpoint_gb", Decimal(1000)),
        ("checkpoint-size=500MB", "checkpoint_gb", Decimal("0.5")),
        ("dataset=50", "dataset_gb", Decimal(50)),
        ("data=S3:US-East-1", "data", DataSource("s3", "us-east-1")),
        ("data=runpod:eu-ro-1", "data", DataSource("runpod", "EU-RO-1")),
        ("data=R2", "data", DataSource("r2")),
        ("evaluation=5%", "evaluation_share", Decimal("0.05")),
        ("eval=100/1000", "evaluation_batches", Decimal("0.1")),
        ("checkpoint-every=30m", "checkpoint_every_s", 1800),
        ("hours=1h30m", "hours", Decimal("1.5")),
        ("goal=2d", "goal_hours", Decimal(48)),
        ("stack=TorchTitan", "stack", "torchtitan"),
        ("steps=10k", "steps", 10_000),
    ],
)
def test_words_are_read(line: str, field: str, value: object) -> None:
    assert getattr(parse(line), field) == value


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("tokens=many", "“many” is not a number of tokens; write 2B."),
        ("tokens=0", "“0” is not a number of tokens; write 2B."),
        ("tokens=5000T", "“5000T” is not a number of tokens; write 2B."),
        ("type=trainning", "Did you mean training?"),
        ("model=a`b", "is not a model; write model=7B"),
        ("model=0B", "is not a model size"),
        ("model=3B-A30B", "is not a model size"),
        ("checkpointing=maybe", "does not answer checkpointing"),
        ("stack=!", "is not the name of a training stack"),
        ("dataset=big", "is not a size; write 20GB or 1TB."),
        ("dataset=0GB", "is not a size; write 20GB or 1TB."),
        ("goal=soon", "is not a time; write 24h, 90m or 2d."),
        ("goal=-3h", "is not a time; write 24h, 90m or 2d."),
        ("goal=0h", "is not a time; write 24h, 90m or 2d."),
        ("modle=7B", "“modle” does not describe a run. Did you mean model?"),
        ("7B", "needs a key and an equals sign"),
        ("seq=1024 seq=2048", "“seq” is said twice"),
        ("model=7B params=8B", "“params” contradicts what was said before"),
        ("params=7B active=8B", "More parameters are active than there are"),
        ("width=100 heads=3", "does not divide into 3 heads"),
        ("batch=4 micro-batch=8", "The micro batch is larger than the batch."),
    ],
)
def test_bad_words_are_named(line: str, sentence: str) -> None:
    with pytest.raises(BadWord) as error:
        parse(line)
    assert sentence in str(error.value)


def test_an_open_quote_is_an_error_of_the_line() -> None:
    with pytest.raises(UnclosedQuote):
        parse('model="7B')


def test_the_same_thing_twice_is_no_contradiction() -> None:
    assert parse("model=7B params=7B").total_params == 7 * 10**9


@given(st.text(max_size=60))
def test_no_line_breaks_the_reader(line: str) -> None:
    try:
        found = parse(line)
    except (BadWord, UnclosedQuote):
        return
    assert isinstance(found, Workload)


def test_what_is_not_known_is_said() -> None:
    assert unknown(Workload()) == (
        "The model's size was not said; write it as model=7B.",
        "How many tokens are processed was not said; write tokens=2B, or steps= with batch= and seq=.",
    )
    (sentence,) = unknown(parse("model=ours tokens=1B"))
    assert sentence == (
        "The size of ours is not known here; write model=7B, model=30B-A3B for a mixture of experts, or layers= and "
        "width= from its config.json."
    )


def test_what_is_assumed_is_said() -> None:
    assert assumed(parse("model=7B")) == (
        "The shape is typical for the size: 32 layers, 4,160 wide.",
        "Sequences of 2,048 tokens are assumed.",
        "A batch of 256 sequences is assumed.",
        "amp_bf16 is assumed.",
        "Evaluation during the run is not counted; write evaluation=5%.",
    )
    assert assumed(parse("model=llama-3-8b seq=8192 batch=16 precision=bf16 evaluation=2%")) == ()
    assert assumed(parse("type=serving seq=100"))[0] == "bf16 is assumed."
    assert parse("type=lora").batch == 16


def test_tokens_follow_from_steps() -> None:
    assert parse("steps=10 batch=4 seq=1024").total_tokens == 40_960
    assert parse("steps=10 batch=4").total_tokens is None
    assert parse("steps=10 batch=4 seq=8 tokens=7").total_tokens == 7


def test_a_named_model_brings_its_shape() -> None:
    found = architecture(parse("model=meta-llama/Llama-3.1-8B"))
    assert found is not None
    assert (found.layers, found.width, found.kv_heads, found.vocab) == (32, 4096, 8, 128256)
    assert found.total_params == MODELS["llama-3-8b"].total_params
    assert found.matmul_params == found.body_params + 4096 * 128256


def test_layers_and_width_are_a_shape() -> None:
    found = architecture(parse("layers=12 width=768 heads=12 vocab=50368"))
    assert found is not None
    assert found.body_params == 12 * 12 * 768**2
    assert found.total_params == found.body_params + 50368 * 768
    assert found.head_width == 64


@pytest.mark.parametrize("seq", [2048, 65536])
def test_learned_positions_are_not_multiplied(seq: int) -> None:
    """MPT-125M as it was benchmarked: one learned vector for each place in the sequence, in the parameter count."""
    classic = 12 * 12 * 768**2
    total = classic + 50368 * 768 + seq * 768
    work = Workload(total_params=total, layers=12, width=768, heads=12, vocab=50368, seq=seq)
    found = architecture(work)
    assert found is not None
    assert found.body_params == classic
    assert found.total_params == total


def test_a_count_that_the_classic_shape_does_not_explain_is_believed() -> None:
    found = architecture(parse("params=8030M layers=32 width=4096 vocab=128256 seq=2048"))
    assert found is not None
    assert found.body_params == 8_030_000_000 - 128256 * 4096
    tiny = architecture(parse("params=10M"))
    assert tiny is not None
    assert tiny.body_params == 5_000_000


def test_active_parameters_are_what_is_multiplied() -> None:
    found = architecture(parse("model=30B-A3B"))
    assert found is not None
    assert found.body_params + found.head_params == pytest.approx(3e9)
    assert found.total_params == 30 * 10**9


def test_part_of_a_shape_is_kept() -> None:
    found = architecture(parse("model=7B layers=40"))
    assert found is not None
    assert (found.layers, found.width) == (40, 4160)
    assert architecture(parse("layers=40")) is None


@given(st.integers(10**6, 10**12), st.floats(1, 4))
def test_a_larger_model_multiplies_less_by_a_step_of_its_width_at_most(params: int, factor: float) -> None:
    small, large = (architecture(Workload(total_params=size)) for size in (params, int(params * factor)))
    assert small is not None
    assert large is not None
    # A typical width is a multiple of 64, so its embedding grows by a step, which the layers' part is without: 4.7 %.
    assert large.body_params >= small.body_params * 0.94


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("data=dropbox", "“dropbox” is no store that is known here; write one of s3, gcs, azure, r2, b2, hub, runpod."),
        ("data=s4:us-east-1", "“s4” is no store that is known here; write one of s3, gcs, azure, r2, b2, hub, runpod."),
        (
            "data=s3://bucket/set",
            "“s3://bucket/set” names a bucket; write its store and its region, such as data=s3:us-east-1.",
        ),
        ("data=s3", "“s3” needs its region; write data=s3:us-east-1."),
        (
            "data=s3:us-east-9",
            "“us-east-9” is no region of S3 that is known here; write data=s3:us-east-1. Did you mean us-east-2?",
        ),
        (
            "data=runpod:EU-R0-1",
            "“EU-R0-1” is no region of RunPod that is known here; write data=runpod:EU-RO-1. Did you mean eu-ro-1?",
        ),
        ("data=r2:weur", "R2 charges the same in every region; write data=r2."),
        *(
            (
                f"evaluation={wrong}",
                f"“{wrong}” is no share of evaluation; write evaluation=5% of the time, at most 90%",
            )
            for wrong in ("0%", "91%", "5", "0/10", "1/0", "101/10", "often")
        ),
    ],
)
def test_a_wrong_place_or_share_is_refused_with_a_right_one(line: str, sentence: str) -> None:
    with pytest.raises(BadWord) as refused:
        parse(line)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("line", "factor"),
    [
        ("model=7B", Decimal(1)),
        ("evaluation=20%", Decimal("1.25")),
        ("evaluation=300/1000", Decimal("1.1")),
        ("type=lora evaluation=300/1000", Decimal("1.15")),
        ("type=serving evaluation=20%", Decimal(1)),
    ],
)
def test_evaluation_makes_a_training_longer(line: str, factor: Decimal) -> None:
    assert float(parse(line).evaluated) == pytest.approx(float(factor))


def test_what_moving_and_evaluating_leave_out_is_said() -> None:
    size, place = "How large the data are was not said", "Where the data lie was not said"
    evaluated = "Evaluation during the run is not counted; write evaluation=5%."
    for line, said in (
        ("model=7B", [evaluated]),
        ("model=7B evaluation=5%", []),
        ("type=serving model=7B", []),
        ("model=7B dataset=5GB", [place, evaluated]),
        ("model=7B data=r2", [size, evaluated]),
        ("model=7B data=r2 dataset=5GB", [evaluated]),
    ):
        found = [one for one in assumed(parse(line)) if one.startswith(("How large", "Where", "Evaluation"))]
        assert len(found) == len(said), line
        assert all(one.startswith(start) for one, start in zip(found, said, strict=True))
