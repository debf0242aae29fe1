"""The files that a machine gets before the command starts, each path from a source of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import Detail, DocumentPart, JobFacet, JobFacts, Key, Text
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.values.mounts import MountMode, mounts_of, run_without_agent
from bot.rules.values.reply_code import ReplyCode


@dataclass(frozen=True, kw_only=True)
class MountFields:
    """Which files its machine gets."""

    #: Each as `bot.rules.values.mounts` writes it: `COPY /data s3://bucket/data`.
    mounts: tuple[str, ...] = ()


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


def _check(job: MountFields, facts: JobFacts) -> BoundsVerdict | None:
    """Say that no machine of the job's clouds could get its files."""
    mounts, clouds = mounts_of(job.mounts), {name: facts.clouds[name] for name in facts.named or facts.clouds}
    mounted = next((mount for mount in mounts if mount.needs_fuse), None)
    if mounted is not None and not any(able.fuse for able in clouds.values()):
        said = (
            f"{mounted.mode} needs FUSE, which no machine at {', '.join(clouds)} has. For {mounted.path}, write "
            "mode: COPY. To keep what the job writes, set checkpoint=."
        )
        return BoundsVerdict(ReplyCode.BAD_MOUNT, said)
    by_itself = run_without_agent(mounts) and any(able.batch for able in clouds.values())
    if mounts and not facts.agent_reaches and not by_itself:
        said = "file_mounts needs GPU Shopper's agent, and no machine can run it until GPU_SHOPPER_NODE_URL is set."
        return BoundsVerdict(ReplyCode.BAD_MOUNT, said)
    return None


def _details(job: MountFields) -> Iterator[Detail]:
    if job.mounts:
        yield Detail("files", ", ".join(mount.shown for mount in mounts_of(job.mounts)))


MOUNTS = JobFacet(
    fields=MountFields,
    check=_check,
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
