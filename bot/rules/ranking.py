"""Which offers answer a job, in order of the expected total run cost; never by the hourly price alone.

Every limit is checked again here, whatever the cloud's own filter did. Linear in the offers but for one sort.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.estimate import Estimate, Scenario, estimate, parts, reliability, scenarios, unpriced
from bot.rules.policy import Policy, Supported
from bot.rules.wording import hours, plural, rate, usd
from ledger.values import JobRequest, SpotPolicy
from providers.base import Capabilities, Offer, Stock
from providers.gpus import GPUS

BEST_COST = "best cost-efficiency"
BEST_STABILITY = "best stability"
EXAMPLES = 3
_ZERO, _ONE = Decimal(0), Decimal(1)

#: ISO 3166 codes of the European Union, so that `region=EU` means what people mean by it.
EU = frozenset(re.findall("..", "ATBEBGCYCZDEDKEEESFIFRGRHRHUIEITLTLULVMTNLPLPTROSESISK"))

#: reason code → the sentence people read; `{n}` is how many offers.
EXCLUSIONS: Mapping[str, str] = {
    "price_missing": "{n} left out: no usable price (missing, zero or negative).",
    "cloud_unknown": "{n} left out: that cloud is not set up here.",
    "cloud": "{n} left out: not one of the clouds asked for.",
    "offer": "{n} left out: another offer was asked for.",
    "gpu": "{n} left out: not one of the GPUs asked for.",
    "gpu_blocked": "{n} left out: the policy blocks that GPU.",
    "image": "{n} left out: the image has no code for that GPU's compute capability; a newer image may have it.",
    "host_blocked": "{n} left out: the policy blocks that host.",
    "country_blocked": "{n} left out: the policy blocks that country.",
    "count": "{n} left out: not the number of GPUs asked for.",
    "memory": "{n} left out: not the memory per GPU asked for.",
    "spot": "{n} left out: spot or on-demand, against what was asked.",
    "region": "{n} left out: not in a region asked for.",
    "disk": "{n} left out: too little disk.",
    "price": "{n} left out: above the highest price per hour.",
    "reliability": "{n} left out: below the reliability asked for, or none is reported.",
    "stock": "{n} left out: sold out.",
    "too_short": "{n} left out: not available for long enough.",
    "budget": "{n} left out: the expected total is above the budget.",
}


@dataclass(frozen=True, slots=True)
class RankedOption:
    """One offer that answers the job. `rank` counts from 1 over all of them; `why` is one sentence."""

    offer: Offer
    estimate: Estimate
    rank: int
    marks: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """Offers left out for one reason: how many, and the ids of the first few."""

    reason_code: str
    sentence: str
    count: int
    example_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The options to show, how many offers answered the job in all, and what was left out and why."""

    options: tuple[RankedOption, ...]
    excluded: tuple[Excluded, ...]
    answered: int = 0


#: More than the exact total of an offer can differ from its unrounded one: six parts, each rounded to a micro-dollar.
_ROUNDING_USD = Decimal("0.000005")


@dataclass(frozen=True, slots=True)
class _Scored:
    offer: Offer
    expected_usd: Decimal
    order: tuple[Decimal | int | str, ...]


class _Field:
    """The offers that answer a job. Exact totals are computed only where they can decide something.

    `near` holds an offer's unrounded total, which is cheap, and its reliability. Two offers whose unrounded totals lie
    more than twice the rounding apart stand in the same order when they are exact.
    """

    def __init__(self, job: JobRequest, policy: Policy, cases: Mapping[str, Scenario]) -> None:
        self._job = job
        self._policy = policy
        self._cases = cases
        self._factors = {cloud: _factors(case) for cloud, case in cases.items()}
        self.near: list[tuple[Decimal, Decimal, Offer]] = []

    def add(self, offer: Offer) -> bool:
        """Whether the offer fits into the budget; only then it is kept."""
        trusted = reliability(offer, self._policy)
        near = _near(offer, self._factors[offer.cloud], trusted, self._policy)
        budget = self._job.budget_cap_usd
        if budget is not None and near > budget - _ROUNDING_USD and self.exact(offer).expected_usd > budget:
            return False
        self.near.append((near, trusted, offer))
        return True

    def exact(self, offer: Offer) -> _Scored:
        """The offer with its exact total and everything that breaks a tie."""
        return _score(offer, self._job, self._policy, self._cases[offer.cloud])

    def cheapest(self, count: int) -> list[_Scored]:
        """The first `count` in the exact order."""
        last = heapq.nsmallest(count, (near for near, _, _ in self.near))[-1] + 2 * _ROUNDING_USD
        return sorted((self.exact(one) for near, _, one in self.near if near <= last), key=_by_order)[:count]

    def stable(self) -> tuple[int, _Scored]:
        """The cheapest of the most stable offers, and its place in the exact order, from 0."""
        spot = all(offer.spot for _, _, offer in self.near)
        most = max(trusted for _, trusted, offer in self.near if offer.spot is spot)
        trusty = [(near, offer) for near, trusted, offer in self.near if trusted == most and offer.spot is spot]
        best = min(_stability(offer) for _, offer in trusty)
        equal = [(near, offer) for near, offer in trusty if _stability(offer) == best]
        last = min(near for near, _ in equal) + 2 * _ROUNDING_USD
        found = min((self.exact(offer) for near, offer in equal if near <= last), key=_by_order)
        return self._place(found), found

    def _place(self, found: _Scored) -> int:
        low, high = found.expected_usd - 2 * _ROUNDING_USD, found.expected_usd + 2 * _ROUNDING_USD
        before = sum(near < low for near, _, _ in self.near)
        return before + sum(self.exact(one).order < found.order for near, _, one in self.near if low <= near <= high)


def _by_order(one: _Scored) -> tuple[Decimal | int | str, ...]:
    return one.order


def _factors(case: Scenario) -> tuple[Decimal, ...]:
    """What the unrounded total multiplies: the rate, the rate x loss, storage, data sent and data fetched."""
    certain = case.compute_h + case.startup_h + case.work_h * case.retries
    return certain, case.work_h * case.interruptions, case.storage_h, case.egress_gb, case.ingress_gb


def _near(offer: Offer, factors: tuple[Decimal, ...], trusted: Decimal, policy: Policy) -> Decimal:
    """The sum of `parts` without rounding."""
    certain, lost, storage_h, egress_gb, ingress_gb = factors
    price = offer.price_usd_h or _ZERO
    stored = min(max(offer.storage_usd_h, _ZERO), price)
    loss = min(1 - trusted + policy.spot_interruption, _ONE) if offer.spot else 1 - trusted
    total = (price - stored) * (certain + lost * loss) + stored * storage_h
    if offer.egress_usd_gb > 0:
        total += offer.egress_usd_gb * egress_gb
    if offer.ingress_usd_gb > 0:
        total += offer.ingress_usd_gb * ingress_gb
    return total


def _stability(offer: Offer) -> tuple[int, int, int]:
    return -int(offer.datacenter or 0), -int(offer.verified or 0), -_STOCK[offer.stock]


def rank(
    offers: Iterable[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities_by_cloud: Mapping[str, Capabilities],
    *,
    top: int | None = None,
) -> Ranked:
    """The best `top` options (the policy's `options_shown` unless given) and everything that was left out.

    The most stable option is always among them: it takes the last place when its own rank is lower. When one option is
    both the cheapest in all and the most stable, it carries both marks.
    """
    cases = {cloud: scenarios(job, policy, able)[1] for cloud, able in capabilities_by_cloud.items()}
    images = {cloud: policy.capabilities_of(job.image or policy.image(cloud)) for cloud in capabilities_by_cloud}
    left_out: dict[str, list[str]] = {}
    field = _Field(job, policy, cases)
    for offer in offers:
        able = capabilities_by_cloud.get(offer.cloud)
        code = "cloud_unknown" if able is None else _reason(offer, job, policy, able.free, images[offer.cloud])
        if code is not None:
            left_out.setdefault(code, []).append(offer.id)
            continue
        if not field.add(offer):
            left_out.setdefault("budget", []).append(offer.id)
    count = max(policy.options_shown if top is None else top, 1)
    return Ranked(
        options=_options(field, count, job, policy, capabilities_by_cloud),
        excluded=tuple(_excluded(code, left_out[code]) for code in EXCLUSIONS if code in left_out),
        answered=len(field.near),
    )


def _reason(offer: Offer, job: JobRequest, policy: Policy, free: bool, image: Supported) -> str | None:
    """The first reason to leave an offer out, in the order in which people can act on it; None when it answers."""
    if job.candidates and offer.cloud not in job.candidates:
        return "cloud"
    if job.offer_id is not None and offer.id != job.offer_id:
        return "offer"
    return _hardware(offer, job, policy, image) or _terms(offer, job, free=free)


def _hardware(offer: Offer, job: JobRequest, policy: Policy, image: Supported) -> str | None:
    gpu = job.gpu
    if gpu.names and offer.gpu not in gpu.names:
        return "gpu"
    if offer.gpu in policy.blocked_gpus:
        return "gpu_blocked"
    if image is not None and not image[0] <= (capability(offer) or image[0]) <= image[1]:
        return "image"
    if policy.blocked_hosts and not _hosts(offer).isdisjoint(policy.blocked_hosts):
        return "host_blocked"
    if any(in_region(offer, country) for country in policy.blocked_countries):
        return "country_blocked"
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


def capability(offer: Offer) -> Decimal | None:
    """The offer's CUDA compute capability: as its cloud says, else as it is known of that GPU; None when unknown."""
    if offer.compute_capability is not None and offer.compute_capability.is_finite():
        return offer.compute_capability
    known = GPUS.get(offer.gpu)
    return None if known is None else known.compute_capability


@functools.lru_cache(maxsize=512)
def _names(country: str, region: str) -> frozenset[str]:
    """Everything that an offer's place is called, in capitals; the same few places come again and again."""
    words = re.findall(r"[A-Z0-9]+", region)
    union = country in EU or (not country and any(word in EU for word in words))
    return frozenset([country, region, *words, *(["EU"] if union else [])])


def _hosts(offer: Offer) -> set[str]:
    return {f"{offer.cloud}:{one}" for one in (offer.host_id, offer.machine_id) if one}


def _terms(offer: Offer, job: JobRequest, *, free: bool) -> str | None:
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
    if offer.available_for_s is not None and offer.available_for_s < job.hours * 3600:
        return "too_short"
    return None


def in_region(offer: Offer, region: str) -> bool:
    """Whether an offer is in what a person calls a region: a country code, `EU`, a region's name or a part of it."""
    return region.strip().upper() in _names((offer.country or "").upper(), offer.region.upper())


def _score(offer: Offer, job: JobRequest, policy: Policy, case: Scenario) -> _Scored:
    """The keys to sort by. Each later key only breaks ties, and better is always smaller, so that no offer ever stands
    above one that is at least as good in everything."""
    expected = sum(parts(offer, case, policy), Decimal(0))
    trusted = reliability(offer, policy)
    facts = (int(offer.spot), -int(offer.datacenter or 0), -int(offer.verified or 0))
    place = job.candidates.index(offer.cloud) if job.candidates else 0
    stock = -_STOCK[offer.stock]
    price = offer.price_usd_h or Decimal(0)
    size = (-offer.memory_gb, -offer.gpu_count)
    return _Scored(
        offer=offer,
        expected_usd=expected,
        order=(expected, price, -trusted, *facts, stock, *size, place, offer.id),
    )


_STOCK = {None: 0, Stock.NONE: 0, Stock.LOW: 0, Stock.MEDIUM: 1, Stock.HIGH: 2}


def _options(
    field: _Field,
    count: int,
    job: JobRequest,
    policy: Policy,
    capabilities_by_cloud: Mapping[str, Capabilities],
) -> tuple[RankedOption, ...]:
    if not field.near:
        return ()
    shown = list(enumerate(field.cheapest(count)))
    least_usd = shown[0][1].expected_usd
    stable, most_stable = field.stable()
    if stable >= len(shown):
        shown[-1 if count > 1 else len(shown) :] = [(stable, most_stable)]
    options = []
    for place, one in shown:
        offer = one.offer
        marks = tuple(mark for mark, holds in ((BEST_COST, place == 0), (BEST_STABILITY, place == stable)) if holds)
        costs = estimate(offer, job, policy, capabilities_by_cloud[offer.cloud])
        why = _why(offer, costs, marks, least_usd, policy)
        options.append(RankedOption(offer=offer, estimate=costs, rank=place + 1, marks=marks, why=why))
    return tuple(options)


def _why(offer: Offer, costs: Estimate, marks: tuple[str, ...], cheapest_usd: Decimal, policy: Policy) -> str:
    kind = "spot" if offer.spot else "on-demand"
    known = "reported" if offer.reliability is not None else "assumed"
    trusted = f"{reliability(offer, policy):.1%} reliability ({known})"
    total = f"{usd(costs.expected_usd)} expected for {hours(costs.hours)} at {rate(offer.price_usd_h or Decimal(0))}"
    if BEST_COST in marks and BEST_STABILITY in marks:
        return f"Lowest expected total and most stable: {total}, {kind}, {trusted}."
    if BEST_COST in marks:
        return f"Lowest expected total: {total}, {kind}, {trusted}."
    more = usd(costs.expected_usd - cheapest_usd)
    if BEST_STABILITY in marks:
        return f"Most stable for {more} more than the cheapest: {total}, {kind}, {trusted}."
    return f"{more} more than the cheapest: {total}, {kind}, {trusted}."


def _excluded(code: str, ids: list[str]) -> Excluded:
    sentence = EXCLUSIONS[code].format(n=plural(len(ids), "offer"))
    return Excluded(reason_code=code, sentence=sentence, count=len(ids), example_ids=tuple(sorted(ids)[:EXAMPLES]))
