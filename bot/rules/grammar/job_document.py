"""Define the portable job request of YAML and JSON: one model for files, REST and everything that is generated.

It only names the words of the `/gpu` language, and that language reads them: a file, a REST body and a Slack command
that say the same become the same `JobRequest`, and are refused with the same sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from bot.rules.grammar.queue_words import MOST_IN_ALL, commands_in
from bot.rules.values.mounts import MountMode
from bot.rules.values.private_keys import LONGEST_KEY
from bot.wire.queue import MOST_COMMANDS

Text = Annotated[str, Field(max_length=1000)]
Number = Annotated[Decimal, Field(allow_inf_nan=False, max_digits=30)]
Said = Number | Text
CommandLines = Annotated[str, Field(max_length=MOST_IN_ALL)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(_Strict):
    """Which GPUs would do: any of the names, so many of them, with so much memory each."""

    name: Said | Annotated[list[Said], Field(max_length=20)] = Field(
        default="", description="One name or several, in any spelling; A100:8 says the number too.", examples=["A100"]
    )
    count: Said | None = Field(default=None, description="4, 2-4, or 2+ for two or more.", examples=["8"])
    memory: Said | None = Field(
        default=None, description="Memory per GPU: 40GB exactly, 40GB+ at least, 40-80GB between.", examples=["40GB+"]
    )


class Resources(_Strict):
    """The machine."""

    gpu: Gpu | Said | None = Field(default=None, description="The GPUs; A100:8 is short for a name and a number.")
    disk: Said | None = Field(default=None, description="The least disk: 200GB, 1TB.", examples=["200GB"])


class CandidatesOrder(StrEnum):
    """Which of the clouds in `candidates` is used: the first one that has an offer, or the cheapest."""

    LISTED = "listed"
    CHEAPEST = "cheapest"


class FileMount(_Strict):
    """Where the files of a path come from, and how."""

    source: Text = Field(
        description="A folder at s3:// or gs://, a repository at hf://, or one file at https://.",
        examples=["s3://bucket/data"],
    )
    mode: MountMode | None = Field(
        default=None,
        description="COPY: copied before `run`. MOUNT and MOUNT_CACHED: read in place, at Lambda and TensorDock only.",
    )


class QueueMatrix(_Strict):
    """Commands from one template: each combination of the values is a command."""

    run: Text = Field(description="The template.", examples=["python train.py --lr {lr} --seed {seed}"])
    values: Annotated[dict[Text, Annotated[list[Said], Field(max_length=MOST_COMMANDS)]], Field(max_length=10)] = Field(
        description="Name in the template → its values.", examples=[{"lr": ["1e-4", "3e-4"], "seed": [1, 2, 3]}]
    )


class JobDocument(_Strict):
    """A portable job request. Money is dollars, times are written 6h, 90m or 2d; a bare number is hours."""

    words: Annotated[str, Field(max_length=4000)] | None = Field(
        default=None,
        description="The job in one line of the /gpu language, to which other fields may add: 8xA100 6h max=$50.",
    )
    resources: Resources = Field(default=Resources(), description="Which GPUs, and how much disk.")
    nodes: Said | None = Field(
        default=None,
        description=(
            "How many machines, at one cloud and in one region: 2 to 4. With `queue` they share its commands, and each "
            "works alone; otherwise they are one set, and all of them run or none."
        ),
        examples=["2"],
    )
    candidates: Annotated[list[Text], Field(max_length=20)] = Field(
        default=[],
        description="Only these clouds, the first one that has an offer: each is used where those before it have none.",
        examples=[["vast", "runpod"]],
    )
    candidates_order: CandidatesOrder = Field(
        default=CandidatesOrder.LISTED,
        description="listed: `candidates` in their order; cheapest: the cheapest of them.",
    )
    regions: Annotated[list[Text], Field(max_length=20)] = Field(default=[], description="Regions or countries.")
    spot: StrictBool | Text | None = Field(default=None, description="no (the default), yes or any.")
    hours: Said | None = Field(default=None, description="For how long; without it, `work` says what runs.")
    workload: Text | None = Field(default=None, description="What kind of work, such as training.")
    work: Annotated[dict[Text, StrictBool | Said], Field(max_length=40)] = Field(
        default={}, description="The words of a run, such as model: 7B, tokens: 2B, seq: 2048."
    )
    budget: Said | None = Field(default=None, description="The most that it may cost in all.", examples=["$50"])
    max_price: Said | None = Field(default=None, description="The most per hour.", examples=["$2.50"])
    below: Said | None = Field(
        default=None, description="Wait for an offer at or below this price per hour.", examples=["$16/h"]
    )
    retry: StrictBool | Text | None = Field(default=None, description="yes: wait while no offer fits.")
    at: Text | None = Field(
        default=None, description="Begin to look for offers then: 20:00 (UTC), 2026-12-01T20:00+01:00, 6h from now."
    )
    until: Text | None = Field(
        default=None, description="How long to wait for an offer, written like `at`; a day without it."
    )
    preset: Text | None = Field(default=None, description="A job of the policy; other fields replace its own.")
    reliability: Said | None = Field(default=None, description="The least reliability: 0.98 or 98%.")
    total_memory: Said | None = Field(default=None, description="The least memory of all GPUs together: 160GB.")
    verified: StrictBool | Text | None = Field(
        default=None, description="yes: only machines that their cloud has verified."
    )
    cuda: Said | None = Field(default=None, description="The least CUDA that the driver runs: 12.4.")
    capability: Said | None = Field(default=None, description="The least CUDA compute capability: 8.9 or sm_89.")
    available: Said | None = Field(
        default=None, description="For how long the cloud must expect the offer to be there: 24h, 3d."
    )
    idle: Said | None = Field(
        default=None, description="End the machine when it is idle for this long, even while its command runs: 30m."
    )
    offer: Text | None = Field(default=None, description="One offer of an inventory answer.", examples=["vast:123"])
    share: Annotated[list[Text], Field(max_length=10)] = Field(
        default=[],
        description="Who else logs in: Slack ids, operator:ada, or names that the policy links.",
        examples=[["U012AB3CD"]],
    )
    image: Text | None = Field(default=None, description="The container image.")
    ports: Annotated[list[Said], Field(max_length=20)] = Field(
        default=[],
        description="Ports to reach from outside, besides SSH: 8888/http for a web page, 6006 for any other (tcp).",
        examples=[["8888/http", "6006"]],
    )
    run: Text | None = Field(default=None, description="The command to run.")
    queue: QueueMatrix | Annotated[list[Text], Field(max_length=MOST_COMMANDS)] | CommandLines | None = Field(
        default=None,
        description="Commands that run one on each GPU, in place of `run`: a list, a text with one command a line, or "
        "a template with values. In a job file also the name of a file with one command a line.",
        examples=[["python train.py --seed 1", "python train.py --seed 2"]],
    )
    attempts: Said | None = Field(
        default=None, description="How often the command is started at most; 1 unless said.", examples=[3]
    )
    retry_codes: Annotated[list[Said], Field(max_length=16)] = Field(
        default=[],
        description="After which exit codes it is started again; after each but 0 unless said.",
        examples=[[75, 137]],
    )
    profile: Text | None = Field(
        default=None,
        description="The profile of a model: its GPUs, its disk and the configs that it may use, from the policy.",
        examples=["moe"],
    )
    config: Text | None = Field(
        default=None,
        description="The config of the run; `run` gets it as --config.",
        examples=["configs/mosaic_small_resume.yaml"],
    )
    run_dir: Text | None = Field(
        default=None, description="The folder of the run; `run` gets it as --run-dir.", examples=["runs/moe"]
    )
    secrets: Annotated[list[Text], Field(max_length=16)] = Field(
        default=[],
        description="Names of secrets that you stored, never values: `run` gets them as variables of its environment.",
        examples=[["HF_TOKEN"]],
    )
    volume: Text | None = Field(
        default=None,
        description="The network volume to mount, by its name. Only offers in its region are considered.",
        examples=["data"],
    )
    repo: Text | None = Field(
        default=None,
        description="The git repository to fetch before `run` starts: https, with a branch, tag or commit behind @.",
        examples=["https://github.com/org/project@main"],
    )
    install: Text | None = Field(
        default=None,
        description="The Python packages to install before `run` starts: train (torch, transformers, peft) or serve "
        "(vLLM), in versions that work together.",
        examples=["train"],
    )
    file_mounts: Annotated[dict[Text, Text | FileMount], Field(max_length=20)] = Field(
        default={},
        description="Path on the machine → where its files come from; without a mode they are copied.",
        examples=[{"/workspace/data": "s3://bucket/data", "/models": {"source": "gs://bucket/models", "mode": "COPY"}}],
    )
    checkpoint: Text | None = Field(default=None, description="Where checkpoints are kept.")
    label: Text | None = Field(default=None, description="The project that it counts for.")
    reason: Annotated[str, Field(max_length=4000)] | None = Field(default=None, description="Approvers read this.")
    consumer: Annotated[str, Field(max_length=40)] | None = Field(
        default=None, description="The program that it is for, by its owner. The program's budgets count."
    )
    ssh_public_key: Annotated[str, Field(max_length=LONGEST_KEY)] | None = Field(
        default=None, description="The key of this machine; without it, the one that is registered."
    )


#: Fields that are no word of the language; every other one has the name of its word, or an alias of it.
_APART = frozenset({"words", "candidates_order", "resources", "work", "file_mounts", "consumer", "ssh_public_key"})


def pairs(document: JobDocument) -> Iterator[tuple[str, str, str]]:
    """Yield `(field of the document, word of the language, value)` for everything that was said."""
    yield from _machine(document.resources)
    for field in JobDocument.model_fields:
        value = getattr(document, field)
        if field == "queue" and value is not None:
            yield field, field, _queue(value)
        elif field not in _APART and value not in (None, "", []):
            yield field, "clouds" if field == "candidates" else field, plain(value)
    for word, value in document.work.items():
        yield f"work.{word}", word, plain(value)


def _queue(value: QueueMatrix | list[str] | str) -> str:
    """Write a queue as the language reads it: a list or an object of JSON, because a word has no lines."""
    if isinstance(value, QueueMatrix):
        values = {name: [plain(one) for one in each] for name, each in value.values.items()}
        return json.dumps({"run": value.run, "values": values})
    return json.dumps(commands_in(value) if isinstance(value, str) else value)


def _machine(wanted: Resources) -> Iterator[tuple[str, str, str]]:
    gpu = wanted.gpu if wanted.gpu is None or isinstance(wanted.gpu, Gpu) else Gpu(name=wanted.gpu)
    if gpu is not None:
        # YAML reads 4090 as a number.
        listed = [plain(one) for one in (gpu.name if isinstance(gpu.name, list) else [gpu.name])]
        names, counts = zip(*(one.partition(":")[::2] for one in listed), strict=True) if listed else ((), ())
        count = next(filter(None, counts), None) if gpu.count is None else gpu.count
        if any(names):
            yield "resources.gpu.name", "gpu", ",".join(names)
        if count is not None:
            yield "resources.gpu.count", "count", plain(count)
        if gpu.memory is not None:
            yield "resources.gpu.memory", "memory", plain(gpu.memory)
    if wanted.disk is not None:
        yield "resources.disk", "disk", plain(wanted.disk)


def plain(value: Any) -> str:
    """Write a value as the language does: YAML reads yes and no as truth, numbers lose no digits, lists have commas."""
    if isinstance(value, list):
        return ",".join(map(plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
