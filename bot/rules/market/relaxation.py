"""Find which single limit, relaxed by how much, would open the market when nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.market.alternatives import alternatives, other_formats
from bot.rules.market.ranking import ordered
from bot.rules.market.scoring import Scored
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import FREE, plural, usd
from ledger.kernel import money
from providers.capabilities import Capabilities
from providers.completeness import ProofOfWhole
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS

_ZERO = Decimal(0)
#: So many changes are advised where nothing fits, the least change first.
ADVISED = 2


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Describe one limit that alone keeps the market closed: its word and what to write instead.

    It also says how many offers that opens, and the expected total of the first of them in dollars. `is_far` where the
    amount is more than twice what was asked: another machine is the better advice then.
    """

    word: str
    instead: str
    opens: int
    expected_usd: Decimal
    sentence: str
    is_far: bool = False


def relax(
    offers: Sequence[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities: Mapping[str, Capabilities],
    proof: ProofOfWhole | None,
    **how: Any,
) -> tuple[Relaxation, ...]:
    """Find every single limit that would open the market, relaxed by as little as possible, the least change first.

    No GPU has less memory than the job asks for. `offers` must be wider than the job asks (`widest`), since what the
    clouds were not asked for cannot be found here. `how` are further arguments of `ordered`. Without a `proof` that
    they are the whole market, no offer is the cheapest.
    """
    least_gb = _asked_gb(job.gpu)
    large = [one for one in offers if one.memory_gb.is_finite() and one.memory_gb >= least_gb]
    found = []
    for word, wider in _wider(job, policy):
        opened = ordered(large, wider, policy, capabilities, **how).scored()
        if opened:
            found.append(_relaxation(word, job, wider, opened, proof))
    return tuple(sorted(found, key=lambda one: one.is_far))


def _asked_gb(gpu: GpuConstraint) -> Decimal:
    """Return the memory per GPU that a job asks for: what it says, or that of the smallest GPU that it names."""
    if gpu.memory_gb_min is not None:
        return gpu.memory_gb_min
    named = [GPUS[name].memory_gb for name in gpu.names if name in GPUS]
    return Decimal(min(named)) if len(named) == len(gpu.names) > 0 else _ZERO


def widest(job: JobRequest, policy: Policy) -> JobRequest:
    """Return what to ask the clouds for, so that every single limit can be tried."""
    return replace(job, gpu=GpuConstraint((), 1, policy.max_gpus), spot=SpotPolicy.ANY, candidates=(), offer_id=None)


def _wider(job: JobRequest, policy: Policy) -> Iterator[tuple[str, JobRequest]]:
    """Yield the job without each of its limits, one at a time.

    Another place, image or cloud rents the same machine, so they come first; then a price, and then another machine.
    """
    yield from other_formats(job)
    yield from _wider_limits(job, policy)
    # A lighter method is another run, so it is the last that is advised.
    for other in alternatives(job, policy):
        yield other.word, other.job


def _wider_limits(job: JobRequest, policy: Policy) -> Iterator[tuple[str, JobRequest]]:
    gpu = job.gpu
    if job.regions:
        yield "region", replace(job, regions=())
    for image in dict.fromkeys(policy.image_capabilities):
        if image != job.image:
            yield "image", replace(job, image=image)
    if job.candidates:
        yield "clouds", replace(job, candidates=())
    if job.max_price_usd_h is not None:
        yield "price", replace(job, max_price_usd_h=None)
    if job.budget_cap_usd is not None:
        yield "max", replace(job, budget_cap_usd=None)
    if job.min_reliability is not None:
        yield "reliability", replace(job, min_reliability=None)
    if job.spot is not SpotPolicy.ANY:
        yield "spot", replace(job, spot=SpotPolicy.ANY)
    if gpu.memory_gb_max is not None:
        yield "memory", replace(job, gpu=replace(gpu, memory_gb_max=None))
    if (gpu.count_min, gpu.count_max) != (1, policy.max_gpus):
        yield "count", replace(job, gpu=replace(gpu, count_min=1, count_max=policy.max_gpus))
    if gpu.names:
        yield "gpu", replace(job, gpu=replace(gpu, names=()))


def _relaxation(
    word: str, job: JobRequest, wider: JobRequest, opened: Sequence[Scored], proof: ProofOfWhole | None
) -> Relaxation:
    if word == "max":
        return _amount(word, job.budget_cap_usd, opened, [one.expected_usd for one in opened], proof)
    if word == "price":
        prices = [one.offer.price_usd_h or _ZERO for one in opened]
        return _amount(word, job.max_price_usd_h, opened, prices, proof)
    best = opened[0]
    offer = best.offer
    if word == "reliability":
        most = max(one.offer.reliability or _ZERO for one in opened)
        instead = f"reliability={money.down(most, 4).normalize():f}"
        reached = [one for one in opened if (one.offer.reliability or _ZERO) == most]
        return _said(word, instead, len(reached), reached[0])
    if word == "memory":
        best = min(opened, key=lambda one: one.offer.memory_gb)
        same = sum(one.offer.memory_gb == best.offer.memory_gb for one in opened)
        return _said(word, f"memory={best.offer.memory_gb.normalize():f}GB", same, best)
    if word == "count":
        best = min(opened, key=lambda one: _more(one.offer.gpu_count, job))
        same = sum(one.offer.gpu_count == best.offer.gpu_count for one in opened)
        return _said(word, f"count={best.offer.gpu_count}", same, best)
    if word == "image":
        return _said(word, f"image={wider.image}", len(opened), best)
    if word not in _VALUES:
        key, _, value = (word if "=" in word else wider.work[-1]).partition("=")
        return _said(key, f"{key}={value}", len(opened), best)
    said = _VALUES[word]
    same = sum(said(one.offer) == said(offer) for one in opened)
    return _said(word, f"{word}={said(offer)}", same, best)


#: Word → what an offer has there, as it is typed.
_VALUES: Mapping[str, Callable[[Offer], str]] = {
    "region": lambda one: one.country or one.region,
    "clouds": lambda one: one.cloud,
    "spot": lambda one: "yes" if one.spot else "no",
    "gpu": lambda one: one.gpu,
}


def _amount(
    word: str, limit: Decimal | None, opened: Sequence[Scored], needed: list[Decimal], proof: ProofOfWhole | None
) -> Relaxation:
    """Return the least amount that opens the market, rounded up to cents, and how much above the limit that is."""
    least = money.cents_up(min(needed))
    within = [one for one, amount in zip(opened, needed, strict=True) if amount <= least]
    asked = limit or _ZERO
    if least > 2 * asked:
        said, total = f"{word}={usd(least)}", within[0].expected_usd
        which = "The cheapest offer that fits" if proof else "An offer that fits"
        sentence = f"{which} needs {said}: {_machine(within[0].offer)}, about {usd(total)}."
        return Relaxation(word, said, len(within), total, sentence, is_far=True)
    return _said(word, f"{word}={usd(least)}", len(within), within[0], f", {usd(least - asked)} more")


def _more(count: int, job: JobRequest) -> int:
    return max(job.gpu.count_min - count, count - job.gpu.count_max)


def _said(word: str, instead: str, opens: int, best: Scored, more: str = "") -> Relaxation:
    total = best.expected_usd
    fit = "fits" if opens == 1 else "fit"
    cost = f"about {usd(total)}" if total else FREE
    sentence = f"With {instead}{more}, {plural(opens, 'offer')} {fit}: {_machine(best.offer)}, {cost}."
    return Relaxation(word, instead, opens, total, sentence)


def _machine(offer: Offer) -> str:
    return f"{offer.gpu_count}x {offer.gpu} at {offer.cloud}"
