"""Which GPUs, how many, with how much memory each, and on how many machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import DocumentPart, Fields, JobFacet, JobFacts, Key, NumberOrText, Word, plain
from bot.rules.policy import job_bounds
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, show
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import closest, lookup

_COUNT = re.compile(r"(\d{1,9})(?:-(\d{1,9})|(\+))?")
MEMORY = r"(?:>=|<=)?\d{1,4}(?:gb|g)?(?:\+|-\d{1,4}(?:gb|g)?)?"


@dataclass(frozen=True)
class GpuFields:
    """Which GPUs, and on how many machines."""

    gpu: GpuConstraint
    #: Machines that work as one set: all of them or none. The GPU constraint is that of each.
    nodes: int = field(default=1, kw_only=True)


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


def _check(job: GpuFields, facts: JobFacts) -> BoundsVerdict | None:
    policy, each = facts.policy, job.gpu
    wrong = (
        job_bounds.nodes(job.nodes)
        or job_bounds.gpu_count(each.count_min, each.count_max, policy)
        or job_bounds.gpu_count(each.count_min * job.nodes, each.count_max * job.nodes, policy)
    )
    refusals = [
        refusal_of_set(cloud, facts.clouds[cloud].single_node, job.nodes, shares_queue=facts.shares_queue)
        for cloud in facts.named or facts.clouds
    ]
    return wrong or (BoundsVerdict(ReplyCode.BAD_NODES, " ".join(refusals)) if refusals and all(refusals) else None)


def refusal_of_set(cloud: str, single_node: str, nodes: int, *, shares_queue: bool) -> str:
    """Say why a cloud rents out no such machines together; "" where it may, or where one is all that is asked for.

    Clouds whose machines stay alone rent each of them out by an offer of its own, which nobody else can have.
    """
    if nodes == 1 or not single_node:
        return ""
    if shares_queue:
        return f"{cloud} can't rent {plural(nodes, 'machine')} of one offer: each of its offers is one machine."
    return f"{cloud} can't rent {plural(nodes, 'machine')} as one set: {single_node}."


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
    fields=GpuFields,
    are_facts=True,
    check=_check,
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
