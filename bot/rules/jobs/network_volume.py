"""The job that asks for a network volume, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.volume_checks import USUAL_H, bad_name, bad_time, no_volumes
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.volume_name import VOLUME
from providers.capabilities import Capabilities
from providers.cloud_names import machines_of
from providers.gpus.constraint import GpuConstraint


def volume_job(
    name: str,
    size_gb: int,
    hours: Decimal = USUAL_H,
    clouds: Collection[str] = (),
    regions: Collection[str] = (),
    reason: str = "",
) -> JobRequest:
    """Return the job that asks for a volume at one of these clouds, named like their machines; empty for all."""
    return JobRequest(
        GpuConstraint(names=(f"{VOLUME}{name.lower()}",)),
        hours,
        disk_gb=size_gb,
        workload="volume",
        candidates=tuple(clouds),
        regions=tuple(regions),
        reason=reason,
    )


def check_volume_job(job: JobRequest, able: Mapping[str, Capabilities]) -> BoundsVerdict | None:
    """Return the first thing that is wrong with a request for a volume; None for a machine."""
    if not job.makes_volume:
        return None
    if wrong := bad_name(job.makes_volume):
        return wrong
    having = [machines_of(name) for name, one in able.items() if one.volume_gb]
    named = [one for name in job.candidates if (one := able.get(name)) is not None and one.volume_gb]
    if not named:
        without = [machines_of(name) for name in job.candidates]
        unset = [name for name in without if name not in able]
        said = no_volumes(" and ".join(without) or "This deployment", having)
        said = f"{' and '.join(unset)}: not set up here. Choose from {', '.join(having)}." if unset and having else said
        return BoundsVerdict(ReplyCode.NO_VOLUMES, said)
    where = " or ".join(machines_of(name) for name in job.candidates if name in able and able[name].volume_gb)
    sizes = [one.volume_gb for one in named if one.volume_gb]
    least, most = min(low for low, _ in sizes), max(high for _, high in sizes)
    if not any(low <= job.disk_gb <= high for low, high in sizes):
        said = f"A volume at {where} can have {least} to {most:,} GB, not {job.disk_gb:,}. Write a size such as 200GB."
        return BoundsVerdict(ReplyCode.BAD_VOLUME, said)
    return bad_time(job.hours)
