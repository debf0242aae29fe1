"""Find which single limit, relaxed by how much, would open the market when nothing fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from bot.rules.market.ranking import in_order
from bot.rules.market.scoring import Scored
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural, usd
from ledger.kernel import money
from ledger.kernel.job import GpuConstraint, JobRequest, SpotPolicy
from providers.capabilities import Capabilities
from providers.contract import Offer

_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Describe one limit that alone keeps the market closed: its word and what to write instead.

    It also says how many offers that opens, and the expected total of the first of them in dollars.
    """

    word: str
    instead: str
    opens: int
    expected_usd: Decimal
    sentence: str


def relax(
    offers: Sequence[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities: Mapping[str, Capabilities],
    **how: Any,
) -> tuple[Relaxation, ...]:
    """Find every single limit that would open the market, relaxed by as little as possible, the cheapest first.

    The cheapest has the least expected total. `offers` must be wider than the job asks (`widest`), since what the
    clouds were not asked for cannot be found here. `how` are further arguments of `in_order`.
    """
    found = []
    for word, wider in _wider(job, policy):
        opened = in_order(offers, wider, policy, capabilities, **how)
        if opened:
            found.append(_relaxation(word, job, opened))
    return tuple(sorted(found, key=lambda one: (one.expected_usd, one.word)))


def widest(job: JobRequest, policy: Policy) -> JobRequest:
    """Return what to ask the clouds for, so that every single limit can be tried."""
    return replace(job, gpu=GpuConstraint((), 1, policy.max_gpus), spot=SpotPolicy.ANY, candidates=(), offer_id=None)


def _wider(job: JobRequest, policy: Policy) -> Iterator[tuple[str, JobRequest]]:
    """Yield the job without each of its limits, one at a time."""
    gpu = job.gpu
    if job.budget_cap_usd is not None:
        yield "max", replace(job, budget_cap_usd=None)
    if job.max_price_usd_h is not None:
        yield "price", replace(job, max_price_usd_h=None)
    if job.min_reliability is not None:
        yield "reliability", replace(job, min_reliability=None)
    if job.regions:
        yield "region", replace(job, regions=())
    if job.candidates:
        yield "clouds", replace(job, candidates=())
    if job.spot is not SpotPolicy.ANY:
        yield "spot", replace(job, spot=SpotPolicy.ANY)
    if gpu.names:
        yield "gpu", replace(job, gpu=replace(gpu, names=()))
    if gpu.memory_gb_min is not None or gpu.memory_gb_max is not None:
        yield "memory", replace(job, gpu=replace(gpu, memory_gb_min=None, memory_gb_max=None))
    if (gpu.count_min, gpu.count_max) != (1, policy.max_gpus):
        yield "count", replace(job, gpu=replace(gpu, count_min=1, count_max=policy.max_gpus))


def _relaxation(word: str, job: JobRequest, opened: Sequence[Scored]) -> Relaxation:
    if word == "max":
        return _amount(word, job.budget_cap_usd, opened, [one.expected_usd for one in opened])
    if word == "price":
        return _amount(word, job.max_price_usd_h, opened, [one.offer.price_usd_h or _ZERO for one in opened])
    best = opened[0]
    offer = best.offer
    if word == "reliability":
        most = max(one.offer.reliability or _ZERO for one in opened)
        instead = f"reliability={money.down(most, 4).normalize():f}"
        reached = [one for one in opened if (one.offer.reliability or _ZERO) == most]
        return _said(word, instead, len(reached), reached[0])
    if word == "memory":
        best = min(opened, key=lambda one: _apart(one.offer.memory_gb, job))
        same = sum(one.offer.memory_gb == best.offer.memory_gb for one in opened)
        return _said(word, f"memory={best.offer.memory_gb.normalize():f}GB", same, best)
    if word == "count":
        best = min(opened, key=lambda one: _more(one.offer.gpu_count, job))
        same = sum(one.offer.gpu_count == best.offer.gpu_count for one in opened)
        return _said(word, f"count={best.offer.gpu_count}", same, best)
    value = {
        "region": offer.country or offer.region,
        "clouds": offer.cloud,
        "spot": "yes" if offer.spot else "no",
        "gpu": offer.gpu,
    }[word]
    return _said(word, f"{word}={value}", len(opened), best)


def _amount(word: str, limit: Decimal | None, opened: Sequence[Scored], needed: list[Decimal]) -> Relaxation:
    """Return the least amount that opens the market, rounded up to cents, and how much above the limit that is."""
    least = money.cents_up(min(needed))
    within = [one for one, amount in zip(opened, needed, strict=True) if amount <= least]
    more = usd(least - (limit or _ZERO))
    return _said(word, f"{word}={usd(least)}", len(within), within[0], f", {more} more")


def _apart(memory_gb: Decimal, job: JobRequest) -> Decimal:
    least, most = job.gpu.memory_gb_min or _ZERO, job.gpu.memory_gb_max
    return max(least - memory_gb, memory_gb - most if most is not None else _ZERO)


def _more(count: int, job: JobRequest) -> int:
    return max(job.gpu.count_min - count, count - job.gpu.count_max)


def _said(word: str, instead: str, opens: int, best: Scored, more: str = "") -> Relaxation:
    total = best.expected_usd
    fit = "fits" if opens == 1 else "fit"
    sentence = f"With {instead}{more}, {plural(opens, 'offer')} {fit}: {best.offer.id}, about {usd(total)}."
    return Relaxation(word, instead, opens, total, sentence)
