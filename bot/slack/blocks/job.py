"""Describe a requested job in words."""

from __future__ import annotations

from bot.rules.jobs.facet_table import FACETS
from bot.rules.jobs.job import JobRequest
from bot.slack.blocks.elements import safe


def details(job: JobRequest) -> str:
    """List the limits that somebody set, as mrkdwn: `disk 50 GB · on-demand only · at most $50.00 in all`."""
    parts = [detail for facet in FACETS for detail in facet.details(job)]
    return " · ".join(f"{safe(part.label)} {safe(part.value, part.most)}".strip() for part in parts)
