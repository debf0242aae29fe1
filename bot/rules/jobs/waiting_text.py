"""Say for what a request waits, from when on and until when, the same in every list and message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bot.rules.jobs import job_text
from bot.rules.jobs.job import JobRequest
from bot.rules.values.phrases import rate

#: How often the market is checked for a request that waits, after the sentence that says what it waits for.
LOOKS = " GPU Shopper checks the offers every minute."


def in_utc(at: datetime) -> str:
    """Write a moment for a reader whose time zone is not known."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def waits_for(job: JobRequest, from_at: datetime, until: datetime, when: Callable[[datetime], str] = in_utc) -> str:
    """Say what a request does until when, to follow its id: `waits for 8x H100 at $16.00/h or less until …`."""
    price = f" at {rate(job.max_price_usd_h)} or less" if job.max_price_usd_h is not None else ""
    start = f" from {when(from_at)}" if job.start_at else ""
    return f"waits for {job_text.gpus(job.gpu)}{price}{start} until {when(until)}"
