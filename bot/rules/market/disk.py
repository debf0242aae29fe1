"""Size the disk of a request: what the policy asks for its workload, and what a described run writes to it."""

from __future__ import annotations

from bot.rules.jobs.facets.work import workload, workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.serve import model_server
from bot.rules.market.filters import stack_of
from bot.rules.policy.policy import Policy
from bot.rules.sizing.workload import Workload
from bot.rules.viability.host import IMAGE_GB, run_disk


def disk_gb(job: JobRequest, policy: Policy) -> int:
    """Return the GB of disk to rent: what was asked, at least the policy's minimum and what run and software need."""
    work, stack = workload_of(job) or _served(job), stack_of(job)
    needed = run_disk(work).whole_gb if work is not None else int(IMAGE_GB) if stack is not None else 0
    needed += stack.disk_gb if stack is not None else 0
    return max(policy.disk_gb(job.workload, job.disk_gb, job.model), needed)


def disk_sentence(job: JobRequest) -> str:
    """Say what the run of a job needs its disk for; empty where only hours are known, or where the job has too few."""
    work, stack = workload_of(job), stack_of(job)
    said = [run_disk(work).sentence] if work is not None else []
    said += [f"install={stack.name} needs {stack.disk_gb} GB more."] if said and stack is not None else []
    return " ".join(said)


def _served(job: JobRequest) -> Workload | None:
    """Return the run of a job whose machine serves a model by itself, for the size of its weights."""
    server = model_server(job)
    return workload((f"model={server.model}", "type=serving")) if server is not None else None
