"""Name the lighter methods of a run, each of which is another run with a table of its own.

Adapters or weights of fewer bits need less, and give another result. So they never stand in the table of what was
asked, where they would look like cheaper offers for the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.disk import disk_gb
from bot.rules.policy.policy import Policy
from bot.rules.sizing.workload import Precision, WorkKind

_TYPE, _PRECISION = "type", "precision"
_LIGHTER: Mapping[WorkKind, tuple[WorkKind, ...]] = {
    WorkKind.FINETUNE: (WorkKind.LORA, WorkKind.QLORA),
    WorkKind.LORA: (WorkKind.QLORA,),
}
_HEADINGS: Mapping[WorkKind | Precision, str] = {
    WorkKind.LORA: "LoRA instead",
    WorkKind.QLORA: "QLoRA instead, with frozen 4-bit weights",
    Precision.INT8: "8-bit weights instead",
    Precision.INT4: "4-bit weights instead",
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """Name one lighter method: its heading, the word that asks for it, and the job with that word."""

    heading: str
    word: str
    job: JobRequest


def alternatives(job: JobRequest, policy: Policy) -> Iterator[Alternative]:
    """Yield the lighter methods of a job's run, the least change first; none where a number format was named."""
    work = workload_of(job)
    if work is None:
        return
    for kind in _LIGHTER.get(work.kind, ()):
        yield _alternative(job, policy, _TYPE, kind)
    if not work.trains and work.precision is None:
        for precision in (Precision.INT8, Precision.INT4):
            yield _alternative(job, policy, _PRECISION, precision)


def other_formats(job: JobRequest) -> Iterator[tuple[str, JobRequest]]:
    """Yield the job in 16-bit floating point without bf16, which older GPUs lack, unless a number format was named."""
    work = workload_of(job)
    if work is not None and work.precision is None:
        yield _PRECISION, _with(job, _PRECISION, Precision.FP16)


def _alternative(job: JobRequest, policy: Policy, key: str, value: WorkKind | Precision) -> Alternative:
    lighter = _with(job, key, value)
    # The disk was sized for the run as asked; a lighter one needs its own.
    own = disk_gb(replace(job, disk_gb=0), policy) == job.disk_gb
    lighter = replace(lighter, disk_gb=disk_gb(replace(lighter, disk_gb=0), policy) if own else job.disk_gb)
    return Alternative(_HEADINGS[value], f"{key}={value.value}", lighter)


def _with(job: JobRequest, key: str, value: WorkKind | Precision) -> JobRequest:
    kept = tuple(word for word in job.work if not word.startswith(f"{key}="))
    return replace(job, work=(*kept, f"{key}={value.value}"))
