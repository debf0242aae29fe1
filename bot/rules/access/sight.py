"""Say how much of a request and its session somebody sees. Every function that shows one takes this value."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from typing import Final

from bot.rules.jobs.job import JobRequest
from providers.gpus.constraint import GpuConstraint


class Sight(StrEnum):
    """How much of a request and its session somebody sees."""

    #: Its owner and the people with whom it is shared: everything, and how to connect.
    OWN = "own"
    #: Approvers and administrators: everything but how to connect.
    ALL = "all"
    #: Somebody to whom it is offered, or a colleague: GPUs, cloud, price, end, costs and people. Not what runs, nor
    #: where it is saved.
    FACTS = "facts"

    @property
    def connects(self) -> bool:
        """Whether they read how to connect."""
        return self is Sight.OWN

    @property
    def shows_work(self) -> bool:
        """Whether they read what runs, where it is saved, and what the machine says about it."""
        return self is not Sight.FACTS


#: The fields of a job that are facts about the machine and its price. A field that is not named here is the work.
JOB_FACTS: Final = frozenset(
    {
        *("gpu", "hours", "nodes", "disk_gb", "candidates", "regions", "spot", "offer_id", "clouds_in_order", "label"),
        *("max_price_usd_h", "budget_cap_usd", "min_reliability", "memory_gb_total_min", "verified_only", "min_cuda"),
        *("min_capability", "min_available_s", "already_hours", "reason", "share", "wait", "start_at", "wait_until"),
        *("idle_s", "volume", "volume_session"),
    }
)


def job_in_sight(job: JobRequest, sight: Sight) -> JobRequest:
    """Return a job with what somebody with this sight may read of it; everything else has its default."""
    if sight.shows_work:
        return job
    nothing = JobRequest(GpuConstraint(), job.hours)
    work = {one.name: getattr(nothing, one.name) for one in fields(JobRequest) if one.name not in JOB_FACTS}
    return replace(job, **work)
