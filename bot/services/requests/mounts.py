"""Check before anything is bought whether the files of a job fit on its disk."""

from __future__ import annotations

import asyncio
import math

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.values.mounts import MountMode, mounts_of
from bot.rules.viability.host import IMAGE_GB, run_disk
from bot.services.runtime.context import Context

_GB = 10**9


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
