"""Read the words that describe a run: `model=7B tokens=2B seq=2048 batch=512 precision=bf16 goal=24h`.

One table of readers in the shape of `bot.rules.jobs.facet.Word`, so that Slack, files and the API take the same
words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.jobs.facet import Fields
from bot.rules.jobs.words import NUMBER, TOKEN_UNITS, duration, whole, yes_or_no
from bot.rules.sizing.data_source import STORES, DataSource
from bot.rules.sizing.media_models import media_model
from bot.rules.sizing.model_shapes import MODELS
from bot.rules.sizing.optimizers import Optimizer
from bot.rules.sizing.workload import Precision, Sharding, WorkKind, Workload
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.text import clean, tokens

KINDS: Mapping[str, WorkKind] = {
    **{kind.value: kind for kind in WorkKind},
    "train": WorkKind.TRAINING,
    "pretrain": WorkKind.TRAINING,
    "pretraining": WorkKind.TRAINING,
    "fine-tune": WorkKind.FINETUNE,
    "fine-tuning": WorkKind.FINETUNE,
    "finetuning": WorkKind.FINETUNE,
    "sft": WorkKind.FINETUNE,
    "inference": WorkKind.SERVING,
    "serve": WorkKind.SERVING,
}
PRECISIONS: Mapping[str, Precision] = {
    **{precision.value: precision for precision in Precision},
    "mixed": Precision.AMP_BF16,
    "amp": Precision.AMP_BF16,
    "bfloat16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "float32": Precision.FP32,
    "amp_fp8": Precision.FP8,
    "float8": Precision.FP8,
    "8bit": Precision.INT8,
    "4bit": Precision.INT4,
    "nf4": Precision.INT4,
}
SHARDINGS: Mapping[str, Sharding] = {
    **{sharding.value: sharding for sharding in Sharding},
    "no_shard": Sharding.DDP,
    "shard_grad_op": Sharding.ZERO2,
    "full_shard": Sharding.ZERO3,
    "fsdp": Sharding.ZERO3,
}
OPTIMIZERS: Mapping[str, Optimizer] = {
    **{optimizer.value: optimizer for optimizer in Optimizer},
    "adam": Optimizer.ADAMW,
    "adam8bit": Optimizer.ADAMW_8BIT,
    "adamw8bit": Optimizer.ADAMW_8BIT,
    "adamw_8bit": Optimizer.ADAMW_8BIT,
}
MOST_PARAMS = 10**14
MOST_TOKENS = 10**15
#: Evaluation that takes more is no training any more: percent of the time, and batches for each step.
_MOST_EVALUATION, _MOST_BATCHES = 90, 10


def _counted(field: str, what: str, sample: str, most: int) -> Callable[[str], Fields]:
    """Make a reader for a whole number above zero, with `k`, `M`, `B` or `T`."""

    def read(text: str) -> Fields:
        amount = whole(text)
        if amount is None or not 0 < amount <= most:
            raise BadWord(f"{show(text)} is not {what}; write {sample}.")
        return {field: amount}

    return read


def _chosen(field: str, what: str, table: Mapping[str, object], sample: str) -> Callable[[str], Fields]:
    """Make a reader for one word of a table."""

    def read(text: str) -> Fields:
        found = table.get(text.lower())
        if found is None:
            raise BadWord(f"{show(text)} is not {what}; write {sample}.{near(text, table)}")
        return {field: found}

    return read


def _size(field: str) -> Callable[[str], Fields]:
    """Make a reader for GB; `1TB` is 1,000 GB."""

    def read(text: str) -> Fields:
        found = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)\s*(gb?|tb?|mb?)?", text.lower())
        scale = {"g": Decimal(1), "t": Decimal(1000), "m": Decimal(1) / 1000}
        size = Decimal(found[1]) * scale[(found[2] or "g")[0]] if found else Decimal(0)
        if size <= 0:
            raise BadWord(f"{show(text)} is not a size; write 20GB or 1TB.")
        return {field: size}

    return read


def _time_h(text: str) -> Decimal:
    total = duration(text)
    if total is None or not 0 < total <= 100_000:
        raise BadWord(f"{show(text)} is not a time; write 24h, 90m or 2d.")
    return round(total, 6)


def _time(field: str) -> Callable[[str], Fields]:
    """Make a reader for a time in hours."""
    return lambda text: {field: _time_h(text)}


def _read_cadence(text: str) -> Fields:
    return {"checkpoint_every_s": max(int(_time_h(text) * 3600), 1)}


def _read_data(text: str) -> Fields:
    """Read `s3:us-east-1`, `runpod:EU-RO-1` or `r2`: where the data lie."""
    name, _, place = text.partition(":")
    if "/" in text:
        raise BadWord(f"{show(text)} names a bucket; write its store and its region, such as data=s3:us-east-1.")
    store = STORES.get(name.lower())
    if store is None:
        there = ", ".join(STORES)
        raise BadWord(f"{show(name)} is no store that is known here; write one of {there}.{near(name, STORES)}")
    sample = f"data={name.lower()}{':' if store.regions else ''}{store.sample}"
    region = next((one for one in store.regions if one.lower() == place.lower()), "")
    if place and not store.regions:
        raise BadWord(f"{store.title} charges the same in every region; write {sample}.")
    if store.regions and not place:
        raise BadWord(f"{show(text)} needs its region; write {sample}.")
    if place and not region:
        hint = near(place, [one.lower() for one in store.regions])
        raise BadWord(f"{show(place)} is no region of {store.title} that is known here; write {sample}.{hint}")
    return {"data": DataSource(name.lower(), region)}


def _read_evaluation(text: str) -> Fields:
    """Read `5%` of the training's time, or `100/1000`: 100 batches after every 1,000 steps."""
    share = re.fullmatch(r"(\d{1,2}(?:\.\d{1,3})?)%", text)
    if share is not None and 0 < Decimal(share[1]) <= _MOST_EVALUATION:
        return {"evaluation_share": Decimal(share[1]) / 100}
    batches = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if batches is not None and 0 < int(batches[1]) <= _MOST_BATCHES * int(batches[2]):
        return {"evaluation_batches": Decimal(batches[1]) / Decimal(batches[2])}
    raise BadWord(
        f"{show(text)} is no share of evaluation; write evaluation=5% of the time, at most {_MOST_EVALUATION}%, or "
        "evaluation=100/1000 for 100 batches after every 1,000 steps."
    )


def _read_model(text: str) -> Fields:
    """Read `7B`, `30B-A3B` for a mixture of experts, or a name.

    An unknown name is kept: only its size is unknown.
    """
    found = re.fullmatch(rf"{NUMBER}(?:-a{NUMBER})?", text.lower())
    if found is None:
        if re.fullmatch(r"\d+(?:\.\d+)?[A-Za-z]{1,2}", text):
            raise BadWord(f"{show(text)} is not a model size; write model=7B or model=30B-A3B.")
        if not re.fullmatch(r"[\w./-]{1,60}", text):
            raise BadWord(f"{show(text)} is not a model; write model=7B or a name such as {next(iter(MODELS))}.")
        return {"model": text}
    total, active = (int(Decimal(found[n] or 0) * TOKEN_UNITS[found[n + 1] or ""]) for n in (1, 3))
    if not 0 < total <= MOST_PARAMS or active > total:
        raise BadWord(f"{show(text)} is not a model size; write model=7B or model=30B-A3B.")
    return {"model": text, "total_params": total, **({"active_params": active} if active else {})}


def _read_checkpointing(text: str) -> Fields:
    return {"checkpointing": yes_or_no(text, "checkpointing")}


def _read_gated(text: str) -> Fields:
    return {"gated": yes_or_no(text, "gated")}


def _read_stack(text: str) -> Fields:
    if not re.fullmatch(r"[A-Za-z][\w.+-]{0,30}", text):
        raise BadWord(f"{show(text)} is not the name of a training stack; write stack=torchtitan.")
    return {"stack": text.lower()}


@dataclass(frozen=True, slots=True)
class WorkWord:
    """Describe one `key=value` that describes a run."""

    key: str
    value: str
    doc: str
    example: str
    read: Callable[[str], Fields]
    aliases: tuple[str, ...] = ()


_COUNT = "a whole number above zero"
_OF_MEDIA: tuple[WorkWord, ...] = (
    WorkWord("images", "NUMBER", "Images in all.", "images=10000", _counted("images", _COUNT, "10000", 10**10)),
    WorkWord(
        "resolution",
        "PIXELS",
        "Side of a square image; 1024 unless you say so.",
        "resolution=768",
        _counted("resolution", _COUNT, "1024", 8192),
    ),
    WorkWord(
        "image-steps",
        "NUMBER",
        "Steps for one image.",
        "image-steps=28",
        _counted("image_steps", _COUNT, "28", 1000),
        ("image_steps",),
    ),
    WorkWord(
        "audio-hours",
        "TIME",
        "Sound to read, in hours.",
        "audio-hours=100",
        _time("audio_hours"),
        ("audio_hours",),
    ),
)
WORK_WORDS: tuple[WorkWord, ...] = (
    WorkWord("type", "KIND", "What kind of work.", "type=lora", _chosen("kind", "a kind of work", KINDS, "type=lora")),
    WorkWord("model", "SIZE or NAME", "The model.", "model=7B", _read_model),
    WorkWord(
        "params", "NUMBER", "All parameters.", "params=7B", _counted("total_params", "a model size", "7B", MOST_PARAMS)
    ),
    WorkWord(
        "active",
        "NUMBER",
        "Parameters per token of a mixture of experts.",
        "active=13B",
        _counted("active_params", "a model size", "13B", MOST_PARAMS),
    ),
    WorkWord("layers", "NUMBER", "Layers.", "layers=32", _counted("layers", _COUNT, "32", 10_000)),
    WorkWord("width", "NUMBER", "Hidden size.", "width=4096", _counted("width", _COUNT, "4096", 10**6)),
    WorkWord("heads", "NUMBER", "Attention heads.", "heads=32", _counted("heads", _COUNT, "32", 10_000)),
    WorkWord(
        "kv-heads", "NUMBER", "Heads of keys and values.", "kv-heads=8", _counted("kv_heads", _COUNT, "8", 10_000)
    ),
    WorkWord(
        "mlp",
        "NUMBER",
        "Inner width of the feed-forward block.",
        "mlp=14336",
        _counted("mlp_width", _COUNT, "14336", 10**7),
    ),
    WorkWord("gated", "yes or no", "Whether that block has three matrices, as Llama's has.", "gated=yes", _read_gated),
    WorkWord("vocab", "NUMBER", "Vocabulary.", "vocab=128256", _counted("vocab", _COUNT, "50257", 10**7)),
    WorkWord("seq", "TOKENS", "Sequence length.", "seq=2048", _counted("seq", "a length", "2048", 10**8), ("context",)),
    WorkWord(
        "batch", "NUMBER", "Sequences per step.", "batch=512", _counted("global_batch", "a batch size", "512", 10**7)
    ),
    WorkWord(
        "micro-batch",
        "NUMBER",
        "Sequences per GPU at a time.",
        "micro-batch=4",
        _counted("micro_batch", "a batch size", "4", 10**6),
        ("micro_batch",),
    ),
    WorkWord(
        "tokens", "NUMBER", "Tokens in all.", "tokens=2B", _counted("tokens", "a number of tokens", "2B", MOST_TOKENS)
    ),
    WorkWord(
        "served-tokens",
        "NUMBER",
        "Tokens that the model serves later, where the plan chooses it.",
        "served-tokens=10B",
        _counted("served_tokens", "a number of tokens", "10B", MOST_TOKENS),
        ("served_tokens",),
    ),
    WorkWord("steps", "NUMBER", "Optimizer steps.", "steps=10k", _counted("steps", "a number of steps", "10k", 10**10)),
    WorkWord(
        "precision",
        "FORMAT",
        "Number format.",
        "precision=bf16",
        _chosen("precision", "a number format", PRECISIONS, "precision=bf16"),
    ),
    WorkWord("stack", "NAME", "The training stack.", "stack=torchtitan", _read_stack, ("framework",)),
    WorkWord(
        "sharding",
        "KIND",
        "What GPUs share.",
        "sharding=zero3",
        _chosen("sharding", "a way to share", SHARDINGS, "sharding=zero3"),
    ),
    WorkWord(
        "checkpointing", "yes or no", "Whether activations are recomputed.", "checkpointing=yes", _read_checkpointing
    ),
    WorkWord(
        "optimizer",
        "NAME",
        "What updates the weights; adamw unless you say so.",
        "optimizer=muon",
        _chosen("optimizer", "an optimizer that is known here", OPTIMIZERS, "optimizer=adamw-8bit"),
    ),
    WorkWord(
        "concurrency",
        "NUMBER",
        "Sequences served at once.",
        "concurrency=16",
        _counted("concurrency", _COUNT, "16", 10**6),
    ),
    WorkWord(
        "prompt-tokens",
        "NUMBER",
        "Tokens of a prompt that is served.",
        "prompt-tokens=1000",
        _counted("prompt_tokens", "a length", "1000", 10**8),
        ("prompt_tokens",),
    ),
    WorkWord(
        "output-tokens",
        "NUMBER",
        "Tokens generated for a prompt.",
        "output-tokens=200",
        _counted("output_tokens", "a length", "200", 10**8),
        ("output_tokens",),
    ),
    WorkWord("goal", "TIME", "When it should be done at the latest.", "goal=24h", _time("goal_hours"), ("by",)),
    WorkWord("hours", "TIME", "For how long, when the work is not known.", "hours=6h", _time("hours"), ("time",)),
    WorkWord("checkpoint-size", "SIZE", "Size of a checkpoint.", "checkpoint-size=20GB", _size("checkpoint_gb")),
    WorkWord("checkpoint-every", "TIME", "Pause between checkpoints.", "checkpoint-every=30m", _read_cadence),
    WorkWord("dataset", "SIZE", "Size of the data.", "dataset=50GB", _size("dataset_gb")),
    WorkWord("data", "STORE[:REGION]", "Where the data lie.", "data=s3:us-east-1", _read_data),
    WorkWord(
        "evaluation",
        "SHARE or BATCHES/STEPS",
        "Time for evaluation; none unless you say so.",
        "evaluation=5%",
        _read_evaluation,
        ("eval",),
    ),
    *_OF_MEDIA,
)

#: every key and alias → its word
WORK_KEYS: Mapping[str, WorkWord] = {name: word for word in WORK_WORDS for name in (word.key, *word.aliases)}


def read(words: Mapping[str, str]) -> Workload:
    """Read the run that `words` (key → value) describe. Raises `BadWord` with a sentence that names the word.

    A number that is said twice must be the same: `model=7B params=8B` is refused.
    """
    fields: Fields = {}
    for key, value in words.items():
        word = WORK_KEYS.get(key.lower())
        if word is None:
            raise BadWord(f"{show(key)} does not describe a run.{near(key, WORK_KEYS)}")
        for name, found in word.read(value).items():
            if fields.get(name, found) != found:
                raise BadWord(f"{show(key)} contradicts what was said before; keep one of the two.")
            fields[name] = found
    if fields.get("model") and media_model(fields["model"]) is not None:
        # Such a model is asked to make or to read something, unless somebody says otherwise.
        fields.setdefault("kind", WorkKind.BATCH)
    return _checked(Workload(**fields))


def parse(line: str) -> Workload:
    """Read a run from one line of `key=value` words. Raises `BadWord`; an unclosed quote is a `ValueError` as well."""
    words: dict[str, str] = {}
    for token in tokens(clean(line)):
        key, equals, value = token.value.partition("=")
        if not equals:
            raise BadWord(f"{show(token.value)} needs a key and an equals sign; write model=7B tokens=2B.")
        if key.lower() in words:
            raise BadWord(f"{show(key)} is said twice; keep one of the two.")
        words[key.lower()] = value
    return read(words)


def _checked(work: Workload) -> Workload:
    """Return `work`, or raise `BadWord` when two of its numbers cannot both be right."""
    medium = work.medium
    if medium is not None and work.trains and (medium.sound or not work.adapts):
        able = "type=batch and type=serving" if medium.sound else "type=batch, type=serving, type=lora and type=qlora"
        raise BadWord(f"{medium.name} can be planned with {able}.")
    if work.active_params is not None and work.active_params > (work.total_params or work.active_params):
        raise BadWord("More parameters are active than there are; swap active= and params=.")
    if work.heads is not None and work.width is not None and work.width % work.heads:
        raise BadWord(f"A width of {work.width} does not divide into {work.heads} heads.")
    if work.micro_batch is not None and work.micro_batch > (work.global_batch or work.micro_batch):
        raise BadWord("The micro batch is larger than the batch.")
    return work
