"""Filter out the offers that do not fit a job, and say why; every limit is checked here, despite clouds' filters."""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.estimate import unpriced
from bot.rules.policy.policy import Policy
from bot.rules.stacks.stack import STACKS, Stack
from bot.rules.values.phrases import plural
from bot.rules.viability.compatibility import Needs, capability, obstacle
from bot.rules.viability.obstacles import SENTENCES, Obstacle
from providers.contract import Offer, Stock

EXAMPLES = 3

#: ISO 3166 codes of the European Union, so that `region=EU` works as people expect.
EU = frozenset(re.findall("..", "ATBEBGCYCZDEDKEEESFIFRGRHRHUIEITLTLULVMTNLPLPTROSESISK"))

#: What depends on the size of what was asked is named behind what was asked itself.
_LATER = frozenset([Obstacle.DISK, Obstacle.VRAM, Obstacle.RAM])

#: reason code → the sentence people read; `{n}` is how many offers.
EXCLUSIONS: Mapping[str, str] = {
    "price_missing": "{n} skipped: no valid price.",
    "cloud_unknown": "{n} skipped: that cloud is not set up here.",
    "cloud": "{n} skipped: not one of the clouds that you named.",
    "offer": "{n} skipped: not the offer that you named.",
    "program": '{n} skipped: that cloud runs one program and nothing else; say which, as in run="python train.py".',
    "own_image": "{n} skipped: that cloud has one image of its own, so leave image= out.",
    "ports": "{n} skipped: that cloud opens no ports.",
    "secrets": "{n} skipped: no agent runs there, which secrets need.",
    "queue": "{n} skipped: no agent runs there, which a queue needs.",
    "fuse": "{n} skipped: rented containers there have no FUSE, which MOUNT needs; mode: COPY works.",
    "mounts": "{n} skipped: no agent runs there, which these file_mounts need.",
    "attempts": "{n} skipped: no agent runs there, which attempts= needs.",
    "install_agent": "{n} skipped: install= needs GPU Shopper's agent, which doesn't run there with that image.",
    "gpu": "{n} skipped: not one of the GPUs that you named.",
    "gpu_blocked": "{n} skipped: the policy blocks that GPU.",
    **{one.value: "{n} skipped: " + SENTENCES[one] for one in Obstacle if one not in _LATER},
    "host_blocked": "{n} skipped: the policy blocks that host.",
    "country_blocked": "{n} skipped: the policy blocks that country.",
    "count": "{n} skipped: another number of GPUs.",
    "memory": "{n} skipped: another memory per GPU.",
    "spot": "{n} skipped: spot where you chose on-demand, or the reverse.",
    "region": "{n} skipped: another region.",
    Obstacle.DISK.value: "{n} skipped: " + SENTENCES[Obstacle.DISK],
    "price": "{n} skipped: above the highest price per hour.",
    "reliability": "{n} skipped: lower reliability, or none reported.",
    "memory_total": "{n} skipped: less memory in all.",
    "unverified": "{n} skipped: not verified by the cloud.",
    "cuda": "{n} skipped: older CUDA, or none reported.",
    "capability": "{n} skipped: lower or unknown compute capability.",
    "available": "{n} skipped: available for less time, or for an unknown time.",
    "stock": "{n} skipped: sold out.",
    **{one.value: "{n} skipped: " + SENTENCES[one] for one in (Obstacle.VRAM, Obstacle.RAM)},
    "too_short": "{n} skipped: not available for long enough.",
    "credit": "{n} skipped: our account there can't pay for one hour, or its limit forbids it.",
    "delivery": "{n} skipped: that machine failed its check in the last 24 hours.",
    "budget": "{n} skipped: the expected total is above the budget.",
}


@dataclass(frozen=True, slots=True)
class Excluded:
    """Count the offers left out for one reason, with the ids of the first few."""

    reason_code: str
    sentence: str
    count: int
    example_ids: tuple[str, ...]


def reason(offer: Offer, job: JobRequest, policy: Policy, free: bool, needs: Needs) -> str | None:
    """Return the first reason to leave an offer out, in the order in which people can act on it; None when it fits."""
    if job.candidates and offer.cloud not in job.candidates:
        return "cloud"
    if job.offer_id is not None and offer.id != job.offer_id:
        return "offer"
    hardware = _hardware(offer, job, policy) or unfit(offer, job)
    # Nothing runs on a volume, so no image and no program can be too much for it.
    unable = None if job.makes_volume else obstacle(offer, needs)
    return hardware or unable or terms(offer, job, free=free)


def filtered(job: JobRequest) -> bool:
    """Whether a job has any of the limits that `unfit` judges."""
    least = (job.memory_gb_total_min, job.min_cuda, job.min_capability, job.min_available_s)
    return job.verified_only or any(one is not None for one in least)


def unfit(offer: Offer, job: JobRequest) -> str | None:
    """Return the limit beyond the GPU itself that an offer misses. What a cloud does not report misses a limit."""
    if job.memory_gb_total_min is not None and offer.memory_gb * offer.gpu_count < job.memory_gb_total_min:
        return "memory_total"
    if job.verified_only and offer.verified is not True:
        return "unverified"
    if job.min_cuda is not None and not _at_least(offer.cuda_max, job.min_cuda):
        return "cuda"
    if job.min_capability is not None and not _at_least(capability(offer), job.min_capability):
        return "capability"
    if job.min_available_s is not None and not _at_least(offer.available_for_s, job.min_available_s):
        return "available"
    return None


def _at_least(said: Decimal | int | None, least: Decimal | int) -> bool:
    return said is not None and Decimal(said).is_finite() and said >= least


def _hardware(offer: Offer, job: JobRequest, policy: Policy) -> str | None:
    gpu = job.gpu
    if gpu.names and offer.gpu not in gpu.names:
        return "gpu"
    found = blocked(offer, policy)
    if found is not None:
        return found
    if not gpu.count_min <= offer.gpu_count <= min(gpu.count_max, policy.max_gpus):
        return "count"
    if not offer.memory_gb.is_finite():
        return "memory"
    if gpu.memory_gb_min is not None and offer.memory_gb < gpu.memory_gb_min:
        return "memory"
    if gpu.memory_gb_max is not None and offer.memory_gb > gpu.memory_gb_max:
        return "memory"
    if offer.disk_gb_max is not None and offer.disk_gb_max < job.disk_gb:
        return "disk"
    return None


def image_of(job: JobRequest, policy: Policy, cloud: str) -> str:
    """Return the image that a job gets at a cloud: its own, or the policy's for the software that it installs."""
    return job.image or policy.image(cloud, job.install or "")


def stack_of(job: JobRequest) -> Stack | None:
    """Return the software that a job installs; None where it names none."""
    return STACKS.get(job.install or "")


def least_cuda(job: JobRequest, policy: Policy, cloud: str) -> Decimal | None:
    """Return the least CUDA that a host at this cloud needs: of the image, the software and the request, the newest."""
    stack = stack_of(job)
    said = [job.min_cuda, policy.needs_of(image_of(job, policy, cloud)).cuda, stack.least_cuda if stack else None]
    return max((one for one in said if one is not None), default=None)


def needs_by_cloud(job: JobRequest, policy: Policy, clouds: Iterable[str]) -> dict[str, Needs]:
    """Return what an offer of each cloud must be able to do: run the image that it would get, and the run."""
    work = workload_of(job)
    stated = {name: Decimal(text) for name, text in policy.gpu_capabilities.items()}
    needs = partial(Needs, work=work, stated=stated, stack=stack_of(job))
    return {cloud: needs(policy.needs_of(image_of(job, policy, cloud))) for cloud in clouds}


def blocked(offer: Offer, policy: Policy) -> str | None:
    """Return what the policy blocks about an offer, whatever is asked for; None when nothing."""
    if offer.gpu in policy.blocked_gpus:
        return "gpu_blocked"
    if policy.blocked_hosts and not _hosts(offer).isdisjoint(policy.blocked_hosts):
        return "host_blocked"
    if policy.blocked_countries and any(in_region(offer, country) for country in policy.blocked_countries):
        return "country_blocked"
    return None


@functools.lru_cache(maxsize=512)
def _names(country: str, region: str) -> frozenset[str]:
    """Return every name of an offer's place, in capitals; cached, because the same few places repeat."""
    words = re.findall(r"[A-Z0-9]+", region)
    union = country in EU or (not country and any(word in EU for word in words))
    return frozenset([country, region, *words, *(["EU"] if union else [])])


def _hosts(offer: Offer) -> set[str]:
    return {f"{offer.cloud}:{one}" for one in (offer.host_id, offer.machine_id) if one}


def terms(offer: Offer, job: JobRequest, *, free: bool) -> str | None:
    """Return why the terms of an offer are not those that were asked: its price, place, time and so on; else None."""
    price = offer.price_usd_h
    if price is None or unpriced(offer, free=free):
        return "price_missing"
    if job.spot is not SpotPolicy.ANY and offer.spot is not (job.spot is SpotPolicy.YES):
        return "spot"
    if job.regions and not any(in_region(offer, region) for region in job.regions):
        return "region"
    if job.max_price_usd_h is not None and price > job.max_price_usd_h:
        return "price"
    known = offer.reliability is not None and offer.reliability.is_finite()
    if job.min_reliability is not None and (not known or (offer.reliability or 0) < job.min_reliability):
        return "reliability"
    if offer.stock is Stock.NONE:
        return "stock"
    if offer.available_for_s is not None and not job.work and offer.available_for_s < job.hours * 3600:
        return "too_short"
    return None


def in_region(offer: Offer, region: str) -> bool:
    """Whether an offer is in what a person calls a region: a country code, `EU`, a region's name or a part of it."""
    return region.strip().upper() in _names((offer.country or "").upper(), offer.region.upper())


def excluded(code: str, ids: list[str]) -> Excluded:
    """Count the offers left out for one reason."""
    sentence = EXCLUSIONS[code].format(n=plural(len(ids), "offer"))
    return Excluded(
        reason_code=code, sentence=sentence, count=len(ids), example_ids=tuple(heapq.nsmallest(EXAMPLES, ids))
    )
