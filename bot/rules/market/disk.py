"""Size the disk of a request: what the policy asks for its workload, and what a described run writes to it."""

from __future__ import annotations

from bot.rules.grammar.run_words import workload_of
from bot.rules.policy.policy import Policy
from bot.rules.viability.host import run_disk
from ledger.kernel.job import JobRequest


def disk_gb(job: JobRequest, policy: Policy) -> int:
    """Return the GB of disk to rent: what was asked, at least the policy's minimum and what the run needs."""
    work = workload_of(job)
    needed = 0 if work is None else run_disk(work).whole_gb
    return max(policy.disk_gb(job.workload, job.disk_gb, job.model), needed)


def disk_sentence(job: JobRequest) -> str:
    """Say what the run of a job needs its disk for; empty where only hours are known, or where the job has too few."""
    work = workload_of(job)
    return run_disk(work).sentence if work is not None else ""
