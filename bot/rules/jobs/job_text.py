"""Write in a few words what a request asks for; the same in Slack, in a terminal and over REST."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.values.phrases import brief, hour_limit, hours, plural
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.volume_name import volume_of
from providers.gpus.constraint import GpuConstraint


def what_is_requested(
    kind: RequestKind, job: JobRequest, parent_id: str | None, max_hours: Decimal | None = None
) -> str:
    """Describe what a request asks for, unescaped: `4× A100-80GB for 6 hours`, `2 h more for 4k7m2p`.

    `max_hours` is the policy's limit, after which an override is named; None where it is not to be had.
    """
    override = f"{hour_limit(max_hours)} override" if max_hours is not None else "override"
    parent = short_id(parent_id or "")
    return {
        RequestKind.PROVISION: title(job),
        RequestKind.MIGRATE: f"Move to {title(job)}",
        RequestKind.VOLUME: f"A {title(job)}",
        RequestKind.EXTEND: f"{brief(job.hours)} more for {parent}",
        RequestKind.OVERRIDE_12H: f"{override} of request {parent}",
        RequestKind.OVERSPEND: f"{parent} costs more than approved",
    }[kind]


def title(job: JobRequest) -> str:
    """Describe the job in short, unescaped, for a header, a list or a plain text: `4× A100-80GB for 6 hours`."""
    if job.makes_volume:
        return f"{job.disk_gb:,} GB volume {job.makes_volume} for {days(job.hours)}"
    return f"{of_machines(job.nodes)}{gpus(job.gpu)} for {hours(job.hours)}"


def days(amount_h: Decimal) -> str:
    """Write a long time as people count it: `14 days`, and in hours what is no number of days."""
    return plural(amount_h / 24, "day") if amount_h >= 24 and amount_h % 24 == 0 else hours(amount_h)


def machine(nodes: int, count: int, gpu: str, times: str = "×") -> str:
    """Describe what runs, unescaped: `4× A100-80GB`, `2 machines of 4× A100-80GB`, `volume data`."""
    if name := volume_of(gpu):
        return f"volume {name}"
    return f"{of_machines(nodes)}{count}{times} {gpu or 'GPU'}"


def of_machines(nodes: int) -> str:
    """Write the number of machines of a set before the GPUs of each: `2 machines of `; "" for one machine."""
    return f"{nodes} machines of " if nodes > 1 else ""


def gpus(gpu: GpuConstraint) -> str:
    """Describe the GPUs, unescaped: `4× A100-80GB`, `2–4× A100-80GB or H100`, `1× any GPU with 40 GB or more`."""
    if len(gpu.names) == 1 and volume_of(gpu.names[0]):
        return machine(1, 1, gpu.names[0])
    count = str(gpu.count_min) if gpu.count_min == gpu.count_max else f"{gpu.count_min}–{gpu.count_max}"
    names = list(gpu.names[:4]) + (["others"] if len(gpu.names) > 4 else [])
    named = " or ".join(names) if names else "any GPU"
    least, most = gpu.memory_gb_min, gpu.memory_gb_max
    if least is not None and least == most:
        named += f" with {least:f} GB"
    elif least is not None and most is not None:
        named += f" with {least:f} to {most:f} GB"
    elif least is not None:
        named += f" with {least:f} GB or more"
    elif most is not None:
        named += f" with {most:f} GB or less"
    return f"{count}× {named}"
