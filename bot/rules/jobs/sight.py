"""Cut a job to what somebody may read of it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from bot.rules.access.sight import Sight
from bot.rules.jobs.facet_table import FACETS
from bot.rules.jobs.job import JobRequest
from providers.gpus.constraint import GpuConstraint

#: The fields of a job that are facts about the machine and its price. A field that is not one of them is the work.
JOB_FACTS: Final = frozenset(field.name for facet in FACETS if facet.are_facts for field in fields(facet.fields)) | {
    "share"
}


def job_in_sight(job: JobRequest, sight: Sight) -> JobRequest:
    """Return a job with what somebody with this sight may read of it; everything else has its default."""
    if sight.shows_work:
        return job
    nothing = JobRequest(GpuConstraint(), job.hours)
    work = {field.name: getattr(nothing, field.name) for field in fields(JobRequest) if field.name not in JOB_FACTS}
    return replace(job, **work)
