"""Which GPUs, how many, with how much memory each, and on how many machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import DocumentPart, Fields, JobFacet, Key, NumberOrText, Word, plain
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, show
from providers.gpus.table import closest, lookup

_COUNT = re.compile(r"(\d{1,9})(?:-(\d{1,9})|(\+))?")
MEMORY = r"(?:>=|<=)?\d{1,4}(?:gb|g)?(?:\+|-\d{1,4}(?:gb|g)?)?"


def read_gpus(text: str, policy: Policy) -> Fields:
    """Read `A100-80GB`, `4090,3090`, and `4xA100` or `2-4xA100`, which sets the number too."""
    counted = re.fullmatch(r"(-?\d{1,9}(?:-\d{1,9})?)\s*x\s*(.*)", text, re.IGNORECASE)
    fields: Fields = read_count(counted[1], policy) if counted else {}
    names: list[str] = []
    for part in (counted[2] if counted else text).split(","):
        found = lookup(part)
        if not found:
            raise BadWord(unknown_gpu(part))
        names += [name for name in found if name not in names]
    return {**fields, "names": tuple(names)}


def unknown_gpu(text: str) -> str:
    """Write the sentence for a GPU that is not in the table, with the nearest names."""
    names = closest(text[:40])
    hint = f" Did you mean {' or '.join(names)}?" if names else ""
    return f"{show(text)} is not a GPU that is known here.{hint}"


def read_count(text: str, policy: Policy) -> Fields:
    """Read `4`, `2-4`, or `2+` GPUs, which are two to as many as the policy allows."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise BadWord(f"{show(text)} is not a number of GPUs; write 4 or 2-4.")
    least = int(found[1])
    most = max(least, policy.max_gpus) if found[3] else int(found[2] or least)
    if wrong := job_bounds.gpu_count(least, most, policy):
        raise BadWord(wrong.sentence)
    return {"count_min": least, "count_max": most}


def read_memory(text: str, _policy: Policy) -> Fields:
    """Read `40GB+` at least, `40GB` exactly, `40-80GB` between; per GPU."""
    bare = text.lower().replace(" ", "")
    if not re.fullmatch(MEMORY, bare):
        raise BadWord(f"{show(text)} is not a memory size; write 40GB+, 40GB or 40-80GB.")
    least, *rest = (Decimal(number) for number in re.findall(r"\d+", bare))
    most = rest[0] if rest else least
    if most < least or most == 0:
        raise BadWord(f"{show(text)} leaves nothing to choose; write 40GB+ or 40-80GB.")
    return {
        "memory_gb_min": None if bare.startswith("<=") else least,
        "memory_gb_max": None if bare.startswith(">=") or bare.endswith("+") else most,
    }


def read_nodes(text: str, _policy: Policy) -> Fields:
    """Read how many machines work as one set."""
    count = int(text) if re.fullmatch(r"\d{1,4}", text) else None
    if count is None:
        raise BadWord(f"{show(text)} is not a number of machines; write nodes=2.")
    if wrong := job_bounds.nodes(count):
        raise BadWord(wrong.sentence)
    return {"nodes": count}


class Gpu(DocumentPart):
    """Which GPUs would do: any of the names, so many of them, with so much memory each."""

    name: NumberOrText | Annotated[list[NumberOrText], Field(max_length=20)] = Field(
        default="", description="One name or several, in any spelling; A100:8 says the number too.", examples=["A100"]
    )
    count: NumberOrText | None = Field(default=None, description="4, 2-4, or 2+ for two or more.", examples=["8"])
    memory: NumberOrText | None = Field(
        default=None, description="Memory per GPU: 40GB exactly, 40GB+ at least, 40-80GB between.", examples=["40GB+"]
    )


class Resources(DocumentPart):
    """The machine."""

    gpu: Gpu | NumberOrText | None = Field(
        default=None, description="The GPUs; A100:8 is short for a name and a number."
    )
    disk: NumberOrText | None = Field(default=None, description="The least disk: 200GB, 1TB.", examples=["200GB"])


def _machine(resources: Resources) -> Iterator[tuple[str, str, str]]:
    gpu = resources.gpu if resources.gpu is None or isinstance(resources.gpu, Gpu) else Gpu(name=resources.gpu)
    if gpu is not None:
        # YAML reads 4090 as a number.
        listed = [plain(name) for name in (gpu.name if isinstance(gpu.name, list) else [gpu.name])]
        names, counts = zip(*(name.partition(":")[::2] for name in listed), strict=True) if listed else ((), ())
        count = next(filter(None, counts), None) if gpu.count is None else gpu.count
        if any(names):
            yield "resources.gpu.name", "gpu", ",".join(names)
        if count is not None:
            yield "resources.gpu.count", "count", plain(count)
        if gpu.memory is not None:
            yield "resources.gpu.memory", "memory", plain(gpu.memory)
    if resources.disk is not None:
        yield "resources.disk", "disk", plain(resources.disk)


GPUS = JobFacet(
    words=(
        Word("gpu", "GPU[,GPU]", "Which GPUs would do.", "gpu=4090", read_gpus),
        Word("count", "N or N-M", "How many GPUs.", "count=2", read_count, ("gpus",)),
        Word(
            "nodes",
            "N",
            "Machines with so many GPUs each: one set, or for queue=.",
            "nodes=2",
            read_nodes,
            ("machines",),
        ),
        Word(
            "memory",
            "SIZE",
            "Memory per GPU: 40GB exactly, 40GB+ at least.",
            "memory=40GB+",
            read_memory,
            ("mem", "vram"),
            narrows=True,
        ),
    ),
    keys=(
        Key("resources", Resources, "Which GPUs, and how much disk.", Resources(), write=_machine),
        Key(
            "nodes",
            NumberOrText | None,
            "How many machines, at one cloud and in one region: 2 to 4. With `queue` they share its commands, and each "
            "works alone; otherwise they are one set, and all of them run or none.",
            examples=["2"],
        ),
    ),
)
