"""The container image of a machine: `image=pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel`."""

from __future__ import annotations

from collections.abc import Iterator

from bot.rules.jobs.facet import Detail, JobFacet, Key, Text
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.words import as_is

_NAME = r"[A-Za-z0-9][\w./:@-]{0,254}"
_EXAMPLE = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"


def _details(job: JobRequest) -> Iterator[Detail]:
    if job.image:
        yield Detail("image", job.image)


IMAGE = JobFacet(
    words=(as_is("image", "IMAGE", "The container image.", f"image={_EXAMPLE}", "the name of an image", _NAME),),
    keys=(Key("image", Text | None, "The container image."),),
    details=_details,
)
