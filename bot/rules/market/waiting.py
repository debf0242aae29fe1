"""Work out the limits of a request that waits for an offer, when to look again, and what all that wait may match."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.moments import resolve
from bot.rules.policy.policy import Policy
from bot.rules.sizing.interruptions import lost_within
from bot.rules.values.phrases import hours as say_hours
from ledger.kernel import money
from providers.gpus.constraint import GpuConstraint

#: How long a request waits that does not say until when.
USUAL: Final = timedelta(hours=24)
#: The pause between two looks at the market, at most.
LOOK_S: Final = 60.0
#: Looks come earlier by up to this share of the pause, so that requests of one moment don't look together for ever.
JITTER: Final = 0.2


class BadWait(ValueError):
    """Refuse a time to wait; the message is the sentence for people."""


@dataclass(frozen=True, slots=True)
class WaitTerms:
    """Hold from when and until when a request looks for an offer, and what it may cost; None limits nothing."""

    from_at: datetime
    until: datetime
    gpu: GpuConstraint
    hours: Decimal
    price_usd_h: Decimal | None
    total_usd: Decimal | None


def limits_of(job: JobRequest, policy: Policy, now: datetime) -> WaitTerms:
    """Return the limits of a request that waits. Raises `BadWait` for a time that has passed or is too far off."""
    from_at = resolve(job.start_at, now, end_of_day=False) if job.start_at else now
    if from_at < now:
        raise BadWait(f"at={job.start_at} has passed. Name a later moment, such as at=20:00.")
    longest = timedelta(hours=float(policy.max_wait_hours))
    until = resolve(job.wait_until, from_at, end_of_day=True) if job.wait_until else from_at + min(USUAL, longest)
    if until <= from_at:
        what = f"until={job.wait_until}"
        raise BadWait(f"{what} is before its start. Name a later moment, such as until=6h.")
    if until > now + longest and (job.wait_until or from_at > now + longest):
        raise BadWait(f"A request waits for {say_hours(policy.max_wait_hours)} at most. Name an earlier moment.")
    until = min(until, now + longest) if not job.wait_until else until
    return WaitTerms(from_at, until, job.gpu, job.hours, job.max_price_usd_h, most_usd(job, policy))


def most_usd(job: JobRequest, policy: Policy) -> Decimal | None:
    """Return the total limit of a waiting job: what was said, or its price for its hours with the policy's buffers.

    The buffers are those of the most that an estimate covers. No host is known yet, so it has the assumed reliability.
    """
    if job.budget_cap_usd is not None or job.max_price_usd_h is None:
        return job.budget_cap_usd
    chance = 1 - policy.assumed_reliability
    if job.spot is not SpotPolicy.NO:
        chance = min(chance + policy.spot_interruption, Decimal(1))
    lost = lost_within(chance, policy.loss_window_h, job.hours)
    return money.cents_up(job.max_price_usd_h * job.hours * (policy.price_tolerance + policy.retry_buffer * 2 + lost))


def limited(job: JobRequest, policy: Policy) -> JobRequest:
    """Return the job with its total limit fixed, so that no later estimate raises it."""
    return replace(job, budget_cap_usd=most_usd(job, policy))


def next_look(request_id: str, now: datetime, until: datetime) -> datetime:
    """Return when to check the market again: in a minute, spread by the request's id, never after `until`.

    The spread differs for each check, and is the same for every process.
    """
    part = zlib.crc32(f"{request_id}/{int(now.timestamp())}".encode()) / 2**32
    return min(now + timedelta(seconds=LOOK_S * (1 - JITTER * part)), until)


def together(jobs: Iterable[JobRequest]) -> JobRequest:
    """Return one job whose market holds every offer that could fit any of these; one listing serves them all.

    It only finds out what is worth a quote, so it takes the smallest disk, and no price is a limit. ValueError for no
    jobs.
    """
    every = tuple(jobs)
    gpus = [job.gpu for job in every]
    names = () if any(not gpu.names for gpu in gpus) else tuple(sorted({name for gpu in gpus for name in gpu.names}))
    spots = {job.spot for job in every}
    clouds = () if any(not job.candidates for job in every) else tuple(sorted({c for j in every for c in j.candidates}))
    return JobRequest(
        gpu=GpuConstraint(names, min(gpu.count_min for gpu in gpus), max(gpu.count_max for gpu in gpus)),
        hours=Decimal(1),
        disk_gb=min(job.disk_gb for job in every),
        candidates=clouds,
        spot=spots.pop() if len(spots) == 1 else SpotPolicy.ANY,
    )
