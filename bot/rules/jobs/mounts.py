"""The files that a machine gets before the command starts, each path from a source of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import Detail, DocumentPart, JobFacet, Key, Text
from bot.rules.jobs.job import JobRequest
from bot.rules.values.mounts import MountMode, mounts_of


class FileMount(DocumentPart):
    """Where the files of a path come from, and how."""

    source: Text = Field(
        description="A folder at s3:// or gs://, a repository at hf://, or one file at https://.",
        examples=["s3://bucket/data"],
    )
    mode: MountMode | None = Field(
        default=None,
        description="COPY: copied before `run`. MOUNT and MOUNT_CACHED: read in place, at Lambda and TensorDock only.",
    )


def _details(job: JobRequest) -> Iterator[Detail]:
    if job.mounts:
        yield Detail("files", ", ".join(mount.shown for mount in mounts_of(job.mounts)))


MOUNTS = JobFacet(
    keys=(
        Key(
            "file_mounts",
            Annotated[dict[Text, Text | FileMount], Field(max_length=20)],
            "Path on the machine → where its files come from; without a mode they are copied.",
            {},
            [{"/workspace/data": "s3://bucket/data", "/models": {"source": "gs://bucket/models", "mode": "COPY"}}],
            word="",
        ),
    ),
    details=_details,
)
