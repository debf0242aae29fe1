"""Check the files of a job before anything is bought: whether a machine can mount them, and whether they fit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.work import workload_of
from bot.rules.values.mounts import MountMode, mounts_of, run_without_agent
from bot.rules.viability.host import IMAGE_GB, run_disk
from bot.services.runtime.context import Context
from providers.capabilities import Capabilities

_GB = 10**9


def refusal(job: JobRequest, clouds: Mapping[str, Capabilities], *, has_agents: bool) -> str | None:
    """Say that no machine of these clouds could get a job's files; None where one could.

    `has_agents`: machines reach this service, so that an agent runs there.
    """
    found = mounts_of(job.mounts)
    mounted = next((one for one in found if one.needs_fuse), None)
    if mounted is not None and not any(one.fuse for one in clouds.values()):
        return (
            f"{mounted.mode} needs FUSE, which no machine at {', '.join(clouds)} has. For {mounted.path}, write "
            "mode: COPY. To keep what the job writes, set checkpoint=."
        )
    by_itself = run_without_agent(found) and any(one.batch for one in clouds.values())
    if found and not has_agents and not by_itself:
        return "file_mounts needs GPU Shopper's agent, and no machine can run it until GPU_SHOPPER_NODE_URL is set."
    return None


async def too_large(ctx: Context, job: JobRequest) -> str | None:
    """Say that a job's copies need a larger disk. Only the sizes of public files are known here."""
    copied = [one for one in mounts_of(job.mounts) if one.mode is MountMode.COPY]
    if not copied or ctx.checkpoints is None:
        return None
    sizes = await asyncio.gather(*(ctx.checkpoints.public_size(one.source) for one in copied))
    files_gb = math.ceil(sum(filter(None, sizes)) / _GB)
    work = workload_of(job)
    needed_gb = max(files_gb + int(IMAGE_GB), run_disk(work).whole_gb if work is not None else 0)
    if not files_gb or needed_gb <= job.disk_gb:
        return None
    return (
        f"The files in file_mounts need {files_gb:,} GB, and the image needs {int(IMAGE_GB)} GB. A disk of "
        f"{job.disk_gb:,} GB is too small for both. Ask for a larger one, such as disk={needed_gb}GB."
    )
