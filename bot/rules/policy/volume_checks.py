"""Check requests for network volumes; every client refuses with the same sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Final

from bot.rules.jobs.job import JobRequest
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel import money
from ledger.kernel.volume_name import VOLUME
from providers.capabilities import Capabilities
from providers.cloud_names import machines_of
from providers.gpus.constraint import GpuConstraint

#: What the labels of every cloud have room for; it is also a folder on the machines.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,22}[a-z0-9]")
SHORTEST_H, LONGEST_H = Decimal(1), Decimal(365 * 24)
USUAL_H: Final = Decimal(14 * 24)
#: No machine outlives the volume that it has mounted, so it ends this much earlier at least.
BEFORE_END_H: Final = Decimal("0.25")


def bad_name(name: str) -> BoundsVerdict | None:
    """Say what is wrong with the name of a volume."""
    if _NAME.fullmatch(name):
        return None
    said = f"“{name[:40]}” is not a volume name. Use 2 to 24 lowercase letters, digits and hyphens, such as data-1."
    return BoundsVerdict(ReplyCode.BAD_VOLUME, said)


def job_of(
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


def no_volumes(cloud: str, having: Collection[str]) -> str:
    """Say in one sentence that a cloud has no network volumes, and which ones here do."""
    others = f"These have them: {', '.join(having)}." if having else "No cloud that is set up here has them."
    return f"{cloud} has no network volumes. {others}"


def check(job: JobRequest, able: Mapping[str, Capabilities]) -> BoundsVerdict | None:
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


def notices_usd(price_usd_h: Decimal, policy: Policy, *, grows: bool) -> Decimal:
    """Return the dollars that the days of notices cost: of a volume that grows, at the size that it may reach."""
    times = policy.volume_growth if grows else Decimal(1)
    return money.worst(price_usd_h * policy.price_tolerance * times * policy.volume_grace_days * 24)


def notices_line(size_gb: int, usd_said: str, policy: Policy, *, grows: bool) -> str:
    """Say on the card what of an approval's limit pays for the days of notices, and how far the volume may grow."""
    days = plural(policy.volume_grace_days, "day")
    if not grows:
        return f"the limit includes {usd_said} for {days} of notices before unpaid data are deleted"
    most = f"{int(size_gb * policy.volume_growth):,} GB"
    excess = f"{usd(policy.volume_excess_usd)} and one day beyond the limit"
    more = f"more growth needs an approval, or costs at most {excess}"
    return f"the limit includes {usd_said} for {days} of notices at up to {most}; {more}"


def bad_time(hours: Decimal) -> BoundsVerdict | None:
    """Say what is wrong with the time that a volume stays in all."""
    if hours.is_finite() and SHORTEST_H <= hours <= LONGEST_H:
        return None
    longest = plural(LONGEST_H / 24, "day")
    return BoundsVerdict(ReplyCode.TOO_LONG, f"A volume can stay for 1 hour to {longest} in all. Write it like 14d.")
