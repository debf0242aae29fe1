"""Describe a requested job in words."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.jobs.job import JobRequest, SpotPolicy
from bot.rules.values.mounts import mounts_of
from bot.rules.values.phrases import hours, plural, rate
from bot.slack.blocks.elements import dollars, safe
from providers.cloud_names import machines_of

_SPOT = {SpotPolicy.NO: "on-demand only", SpotPolicy.YES: "spot only", SpotPolicy.ANY: "spot or on-demand"}


def details(job: JobRequest) -> str:
    """List the limits that somebody set, as mrkdwn: `disk 50 GB · on-demand only · at most $50.00 in all`."""
    parts = [f"disk {job.disk_gb} GB", _SPOT[job.spot]]
    if job.budget_cap_usd is not None:
        parts.append(f"at most {dollars(job.budget_cap_usd)} in all")
    if job.max_price_usd_h is not None:
        parts.append(f"at most {rate(job.max_price_usd_h)}")
    if job.candidates:
        order = " in this order" if job.clouds_in_order else ""
        parts.append(f"clouds {', '.join(safe(machines_of(name), 40) for name in job.candidates[:6])}{order}")
    if job.regions:
        parts.append("regions " + ", ".join(safe(name, 40) for name in job.regions[:6]))
    if job.min_reliability is not None:
        parts.append(f"reliability {(job.min_reliability * 100).normalize():f}% or more")
    parts += _limits(job)
    if job.offer_id:
        parts.append(f"only offer {safe(job.offer_id, 80)}")
    for word, value in (
        ("model", job.model),
        ("image", job.image),
        ("ports", ", ".join(job.ports)),
        ("secrets", ", ".join(job.secrets)),
        ("installs", job.install),
        ("repository", job.repo),
        ("files", ", ".join(one.shown for one in mounts_of(job.mounts))),
        ("runs", job.run),
        ("queue", plural(len(job.queue), "command") if job.queue else ""),
        ("attempts", str(job.attempts) if job.attempts > 1 else ""),
        ("ends when idle for", hours(Decimal(job.idle_s) / 3600) if job.idle_s else ""),
    ):
        if value:
            parts.append(f"{word} {safe(value, 80)}")
    return " · ".join(parts)


def _limits(job: JobRequest) -> list[str]:
    least = (
        ("{} GB or more in all", job.memory_gb_total_min),
        ("CUDA {} or newer", job.min_cuda),
        ("compute capability {} or more", job.min_capability),
        ("there for {} h or more", None if job.min_available_s is None else Decimal(job.min_available_s) / 3600),
    )
    verified = ["verified machines only"] if job.verified_only else []
    return verified + [text.format(f"{value.normalize():f}") for text, value in least if value is not None]
