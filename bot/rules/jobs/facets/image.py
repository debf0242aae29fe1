"""The container image of a machine: `image=pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.rules.jobs.facet import Detail, JobFacet, Key, Text
from bot.rules.jobs.words import as_is

_NAME = r"[A-Za-z0-9][\w./:@-]{0,254}"
_EXAMPLE = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"


@dataclass(frozen=True, kw_only=True)
class ImageFields:
    """Which image its machine runs."""

    image: str | None = None


def _details(job: ImageFields) -> Iterator[Detail]:
    if job.image:
        yield Detail("image", job.image)


IMAGE = JobFacet(
    fields=ImageFields,
    words=(as_is("image", "IMAGE", "The container image.", f"image={_EXAMPLE}", "the name of an image", _NAME),),
    keys=(Key("image", Text | None, "The container image."),),
    details=_details,
)
