"""The portable job request as YAML and JSON write it: one model for files, REST and everything that is generated.

It only names the words of the `/gpu` language, and that language reads them: a file, a REST body and a Slack command
that say the same become the same request, and are refused with the same sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.rules.grammar.job_args import job_request
from bot.rules.grammar.parser import GrammarError, parse, said
from bot.rules.instances import file_mounts as instance_file_mounts
from bot.rules.policy.policy import Policy
from bot.services.access import ssh_keys
from ledger.kernel.job import JobRequest

Text = Annotated[str, Field(max_length=1000)]
Number = Annotated[Decimal, Field(allow_inf_nan=False, max_digits=30)]
Said = Number | Text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(_Strict):
    """Which GPUs would do: any of the names, so many of them, with so much memory each."""

    name: Text | Annotated[list[Text], Field(max_length=20)] = Field(
        default="", description="One name or several, in any spelling; A100:8 says the number too.", examples=["A100"]
    )
    count: Said | None = Field(default=None, description="4, 2-4, or 2+ for two or more.", examples=["8"])
    memory: Said | None = Field(
        default=None, description="Memory per GPU: 40GB exactly, 40GB+ at least, 40-80GB between.", examples=["40GB+"]
    )


class Resources(_Strict):
    """The machine."""

    gpu: Gpu | Text | None = Field(default=None, description="The GPUs; A100:8 is short for a name and a number.")
    disk: Said | None = Field(default=None, description="The least disk: 200GB, 1TB.", examples=["200GB"])


class JobDocument(_Strict):
    """A portable job request. Money is dollars, times are written 6h, 90m or 2d; a bare number is hours."""

    words: Annotated[str, Field(max_length=4000)] | None = Field(
        default=None,
        description="The job in one line of the /gpu language, to which other fields may add: 8xA100 6h max=$50.",
    )
    resources: Resources = Field(default=Resources(), description="Which GPUs, and how much disk.")
    candidates: Annotated[list[Text], Field(max_length=20)] = Field(
        default=[], description="Only these clouds; the order breaks ties.", examples=[["vast", "runpod"]]
    )
    regions: Annotated[list[Text], Field(max_length=20)] = Field(default=[], description="Regions or countries.")
    spot: bool | Text | None = Field(default=None, description="no (the default), yes or any.")
    hours: Said | None = Field(default=None, description="For how long; without it, `work` says what runs.")
    workload: Text | None = Field(default=None, description="What kind of work, such as training.")
    work: Annotated[dict[Text, bool | Said], Field(max_length=40)] = Field(
        default={}, description="The words of a run, such as model: 7B, tokens: 2B, seq: 2048."
    )
    budget: Said | None = Field(default=None, description="The most that it may cost in all.", examples=["$50"])
    max_price: Said | None = Field(default=None, description="The most per hour.", examples=["$2.50"])
    reliability: Said | None = Field(default=None, description="The least reliability: 0.98 or 98%.")
    total_memory: Said | None = Field(default=None, description="The least memory of all GPUs together: 160GB.")
    verified: bool | Text | None = Field(default=None, description="yes: only machines that their cloud has verified.")
    cuda: Said | None = Field(default=None, description="The least CUDA that the driver runs: 12.4.")
    capability: Said | None = Field(default=None, description="The least CUDA compute capability: 8.9 or sm_89.")
    available: Said | None = Field(
        default=None, description="For how long the cloud must expect the offer to be there: 24h, 3d."
    )
    offer: Text | None = Field(default=None, description="One offer of an inventory answer.", examples=["vast:123"])
    image: Text | None = Field(default=None, description="The container image.")
    run: Text | None = Field(default=None, description="The command to run.")
    file_mounts: Annotated[dict[Text, Text], Field(max_length=20)] = Field(
        default={},
        description="Path on the machine → where its files come from: s3://, gs:// or https:// before `run` starts.",
        examples=[{"/workspace/data": "s3://bucket/data"}],
    )
    checkpoint: Text | None = Field(default=None, description="Where checkpoints are kept.")
    reason: Annotated[str, Field(max_length=4000)] | None = Field(default=None, description="Approvers read this.")
    consumer: Annotated[str, Field(max_length=40)] | None = Field(
        default=None, description="The program that it is for, asked by whoever answers for it; its budgets count."
    )
    ssh_public_key: Annotated[str, Field(max_length=ssh_keys.LONGEST_KEY)] | None = Field(
        default=None, description="The key of this machine; without it, the one that is registered."
    )


def completed(document: JobDocument, defaults: Mapping[str, str]) -> JobDocument:
    """The document, with defaults where it says nothing. Raises `BadJob` for a default that is wrong.

    A job in words says everything itself.
    """
    if not defaults or document.words is not None:
        return document
    try:
        return JobDocument.model_validate({**defaults, **document.model_dump(exclude_unset=True)})
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        raise BadJob("bad_default", field, f"The policy's default for {field} is not what this field takes.") from error


class BadJob(ValueError):
    """A job that cannot be asked for: a stable `code`, the `field` that is wrong, and the sentence for people."""

    def __init__(self, code: str, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.field = field


def read_job(document: JobDocument, policy: Policy, command: str = "provision") -> JobRequest:
    """The request that a document describes, read by the language of `/gpu`. Raises `BadJob`."""
    pairs = list(_pairs(document, policy))
    more, line = [(word, value) for _, word, value in pairs], ""
    if document.words is None:
        parsed = said(command, more, policy)
    else:
        line = f"{command} {document.words}"
        parsed = parse(line, policy, more)
    if isinstance(parsed, GrammarError):
        place = parsed.position - len(line)
        field = pairs[place - 1][0] if 0 < place <= len(pairs) else ""
        raise BadJob(parsed.code, field or ("words" if document.words else ""), parsed.message)
    if parsed.args is None:
        raise BadJob(GrammarError.code, "", "Say which GPU and for how long, or what runs.")
    job = job_request(parsed.args, policy, None if parsed.args.hours is not None else _UNTIMED)
    try:
        run = instance_file_mounts.before(document.file_mounts, job.run)
    except instance_file_mounts.BadMount as error:
        raise BadJob("bad_mount", "file_mounts", str(error)) from error
    return replace(job, run=run, public_key=_public_key(document.ssh_public_key))


#: What a described run carries until its own time is known.
_UNTIMED = Decimal(1)


def _public_key(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        line, _ = ssh_keys.normalise(text)
    except ssh_keys.KeyRefused as refused:
        raise BadJob(refused.code, "ssh_public_key", str(refused)) from refused
    return line


def _pairs(document: JobDocument, policy: Policy) -> Iterator[tuple[str, str, str]]:
    """`(field of the document, word of the language, value)` for everything that was said."""
    yield from _machine(document.resources, policy)
    for field, word, value in (
        ("candidates", "clouds", ",".join(document.candidates)),
        ("regions", "region", ",".join(document.regions)),
        ("spot", "spot", document.spot),
        ("hours", "hours", document.hours),
        ("workload", "workload", document.workload),
        ("budget", "max", document.budget),
        ("max_price", "price", document.max_price),
        ("reliability", "reliability", document.reliability),
        ("total_memory", "total", document.total_memory),
        ("verified", "verified", document.verified),
        ("cuda", "cuda", document.cuda),
        ("capability", "capability", document.capability),
        ("available", "available", document.available),
        ("offer", "offer", document.offer),
        ("image", "image", document.image),
        ("run", "run", document.run),
        ("checkpoint", "checkpoint", document.checkpoint),
        ("reason", "for", document.reason),
    ):
        if value not in (None, ""):
            yield field, word, plain(value)
    for word, value in document.work.items():
        yield f"work.{word}", word, plain(value)


def _machine(wanted: Resources, policy: Policy) -> Iterator[tuple[str, str, str]]:
    gpu = Gpu(name=wanted.gpu) if isinstance(wanted.gpu, str) else wanted.gpu
    if gpu is not None:
        listed = [gpu.name] if isinstance(gpu.name, str) else gpu.name
        names, counts = zip(*(one.partition(":")[::2] for one in listed), strict=True) if listed else ((), ())
        count = next(filter(None, counts), None) if gpu.count is None else gpu.count
        if any(names):
            yield "resources.gpu.name", "gpu", ",".join(names)
        if count is not None:
            yield "resources.gpu.count", "count", _at_least(plain(count), policy)
        if gpu.memory is not None:
            yield "resources.gpu.memory", "memory", plain(gpu.memory)
    if wanted.disk is not None:
        yield "resources.disk", "disk", plain(wanted.disk).removesuffix("+")


def _at_least(count: str, policy: Policy) -> str:
    """`2+` GPUs are two to as many as the policy allows."""
    return f"{count.removesuffix('+')}-{policy.max_gpus}" if count.endswith("+") else count


def plain(value: Any) -> str:
    """A value as the language writes it: YAML reads yes and no as truth, and numbers lose no digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
