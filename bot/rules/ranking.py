"""Which offers answer a job, in order of the expected total run cost with its risk; never by the hourly price alone.

What decides is the expected total plus a penalty for risk: the policy's `risk_weight` x the chance of losing the host x
the compute cost. Where the work is known, each offer is counted with the hours that it needs; offers that miss the goal
stand below those that reach it, and below them offers of which nobody can tell how long they take. Linear in the offers
but for one sort.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from bot.rules.estimate import Estimate, Scenario, estimate, lost_share, parts, reliability, scenarios
from bot.rules.excluding import EXCLUSIONS, Excluded, excluded, reason
from bot.rules.grammar_run import workload_of
from bot.rules.policy import Policy
from bot.rules.run_time import RunTime, run_time
from bot.rules.wording import hours, rate, usd
from ledger.values import JobRequest
from providers.base import Capabilities, Offer, Stock

BEST_COST = "best cost-efficiency"
BEST_STABILITY = "best stability"
FREE = "free"
FASTEST = "fastest within budget"
_ZERO, _ONE = Decimal(0), Decimal(1)

#: Where an option stands before any price is looked at.
IN_TIME, LATE, UNKNOWN_TIME = range(3)


@dataclass(frozen=True, slots=True)
class RankedOption:
    """One offer that answers the job. `rank` counts from 1 over all of them; `why` is one sentence; `risk_usd` is what
    the ranking adds to the expected total."""

    offer: Offer
    estimate: Estimate
    rank: int
    marks: tuple[str, ...]
    why: str
    risk_usd: Decimal = _ZERO


@dataclass(frozen=True, slots=True)
class Ranked:
    """The options to show, how many offers answered the job in all, and what was left out and why."""

    options: tuple[RankedOption, ...]
    excluded: tuple[Excluded, ...]
    answered: int = 0


#: More than the exact total of an offer can differ from its unrounded one: six parts and the penalty, each rounded to a
#: micro-dollar.
_ROUNDING_USD = Decimal("0.000006")
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class _Scored:
    offer: Offer
    expected_usd: Decimal
    risk_usd: Decimal
    order: tuple[Decimal | int | str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """The expected scenario of one cloud and number of one GPU, with the hours that an unrounded total multiplies:
    certain ones, those of the penalty, and, where the loss is in proportion to its chance, those of the loss."""

    run: RunTime | None
    tier: int
    scenario: Scenario
    certain_h: Decimal
    risk_h: Decimal
    lost_h: Decimal | None
    losses_h: dict[Decimal, Decimal] = field(default_factory=dict)

    def lost(self, chance: Decimal) -> Decimal:
        """The hours that a chance of losing the host costs. The same few chances come again and again."""
        if self.lost_h is not None:
            return self.lost_h * chance
        found = self.losses_h.get(chance)
        if found is None:
            found = self.scenario.work_h * lost_share(chance, self.scenario)
            self.losses_h[chance] = found
        return found


class _Cases:
    """One case per cloud, GPU and number, since all offers of those take the same time."""

    def __init__(self, job: JobRequest, policy: Policy, able: Mapping[str, Capabilities], *, whole: bool) -> None:
        self._job = job
        self._policy = policy
        self._able = able
        self._whole = whole
        self._work = workload_of(job)
        self._runs: dict[tuple[str, int], RunTime] = {}
        self._known: dict[str | tuple[str, str, int], _Case] = {}

    def of(self, offer: Offer) -> _Case:
        """The case of an offer."""
        key = offer.cloud if self._work is None else (offer.cloud, offer.gpu, offer.gpu_count)
        found = self._known.get(key)
        if found is None:
            run = self.run(offer)
            expected = scenarios(self._job, self._policy, self._able[offer.cloud], run, whole=self._whole)[1]
            certain_h = expected.compute_h + expected.startup_h + expected.work_h * expected.retries
            linear = expected.checkpointing is None
            found = _Case(
                run=run,
                tier=self._tier(run),
                scenario=expected,
                certain_h=certain_h,
                risk_h=self._policy.risk_weight * expected.work_h,
                lost_h=expected.work_h * expected.interruptions if linear else None,
            )
            self._known[key] = found
        return found

    def run(self, offer: Offer) -> RunTime | None:
        """The time of the work on an offer's GPUs; None where only hours are asked for."""
        if self._work is None:
            return None
        key = offer.gpu, offer.gpu_count
        if key not in self._runs:
            found = run_time(self._work, *key, self._job.hours)
            over_h = found.hours.expected - self._job.hours if self._whole and found.known else _ZERO
            self._runs[key] = replace(found, late_h=max(found.late_h, over_h))
        return self._runs[key]

    def _tier(self, run: RunTime | None) -> int:
        if run is None:
            return IN_TIME
        if not run.known:
            return UNKNOWN_TIME
        return LATE if run.late_h else IN_TIME


_Near = tuple[int, Decimal]


class _Field:
    """The offers that answer a job. Exact totals are computed only where they can decide something.

    `near` holds an offer's tier and its unrounded total with the penalty, which is cheap, and its reliability. Two
    offers whose unrounded totals lie more than twice the rounding apart stand in the same order when they are exact.
    """

    def __init__(self, job: JobRequest, policy: Policy, cases: _Cases) -> None:
        self._job = job
        self._policy = policy
        self._cases = cases
        self.near: list[tuple[_Near, Decimal, Offer]] = []

    def add(self, offer: Offer) -> str | None:
        """The reason to leave an offer out that only its time and its total can tell; None when it is kept."""
        case = self._cases.of(offer)
        if case.run is not None:
            if not case.run.fits:
                return "vram"
            needed_s = case.run.hours.expected * 3600
            if offer.available_for_s is not None and offer.available_for_s < needed_s:
                return "too_short"
        trusted = reliability(offer, self._policy)
        total, risk = _near(offer, case, trusted, self._policy)
        budget = self._job.budget_cap_usd
        if budget is not None and total > budget - _ROUNDING_USD and self.exact(offer).expected_usd > budget:
            return "budget"
        self.near.append(((case.tier, total + risk), trusted, offer))
        return None

    def exact(self, offer: Offer) -> _Scored:
        """The offer with its exact total and everything that breaks a tie."""
        return _score(offer, self._job, self._policy, self._cases.of(offer))

    def cheapest(self, count: int) -> list[_Scored]:
        """The first `count` in the exact order."""
        tier, total = heapq.nsmallest(count, (near for near, _, _ in self.near))[-1]
        last = tier, total + 2 * _ROUNDING_USD
        return sorted((self.exact(one) for near, _, one in self.near if near <= last), key=_by_order)[:count]

    def stable(self) -> tuple[int, _Scored]:
        """The cheapest of the most stable offers, and its place in the exact order, from 0."""
        first = min(near[0] for near, _, _ in self.near)
        near = [one for one in self.near if one[0][0] == first]
        spot = all(offer.spot for _, _, offer in near)
        most = max(trusted for _, trusted, offer in near if offer.spot is spot)
        trusty = [(total, offer) for total, trusted, offer in near if trusted == most and offer.spot is spot]
        best = min(_stability(offer) for _, offer in trusty)
        return self._first([(total, offer) for total, offer in trusty if _stability(offer) == best])

    def fastest(self) -> tuple[int, _Scored] | None:
        """The cheapest of the offers that are done first, and its place; None where no time follows from the work."""
        times = [(case.run.hours.expected, near, offer) for near, case, offer in self._timed() if case.run is not None]
        if not times:
            return None
        least = min(time for time, _, _ in times)
        return self._first([(near, offer) for time, near, offer in times if time == least])

    def _timed(self) -> list[tuple[_Near, _Case, Offer]]:
        cases = ((near, self._cases.of(offer), offer) for near, _, offer in self.near)
        return [one for one in cases if one[1].run is not None and one[1].run.known]

    def _first(self, equal: list[tuple[_Near, Offer]]) -> tuple[int, _Scored]:
        tier, total = min(near for near, _ in equal)
        last = tier, total + 2 * _ROUNDING_USD
        found = min((self.exact(offer) for near, offer in equal if near <= last), key=_by_order)
        return self._place(found, tier), found

    def _place(self, found: _Scored, tier: int) -> int:
        total = found.expected_usd + found.risk_usd
        low, high = (tier, total - 2 * _ROUNDING_USD), (tier, total + 2 * _ROUNDING_USD)
        before = sum(near < low for near, _, _ in self.near)
        return before + sum(self.exact(one).order < found.order for near, _, one in self.near if low <= near <= high)


def _by_order(one: _Scored) -> tuple[Decimal | int | str, ...]:
    return one.order


def _near(offer: Offer, case: _Case, trusted: Decimal, policy: Policy) -> tuple[Decimal, Decimal]:
    """The sum of `parts` and the penalty, without rounding."""
    expected = case.scenario
    price = offer.price_usd_h or _ZERO
    stored = min(max(offer.storage_usd_h, _ZERO), price)
    chance = min(1 - trusted + policy.spot_interruption, _ONE) if offer.spot else 1 - trusted
    hourly = price - stored
    total = hourly * (case.certain_h + case.lost(chance))
    total += stored * expected.storage_h + expected.store_usd
    if offer.egress_usd_gb > 0:
        total += offer.egress_usd_gb * expected.egress_gb
    if offer.ingress_usd_gb > 0:
        total += offer.ingress_usd_gb * expected.ingress_gb
    return total, case.risk_h * chance * hourly


def _stability(offer: Offer) -> tuple[int, int, int]:
    return -int(offer.datacenter or 0), -int(offer.verified or 0), -_STOCK[offer.stock]


def rank(
    offers: Iterable[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities_by_cloud: Mapping[str, Capabilities],
    *,
    top: int | None = None,
    whole: bool = False,
    to_run: bool = False,
) -> Ranked:
    """The best `top` options (the policy's `options_shown` unless given) and everything that was left out.

    The most stable option and, where times follow from the work, the fastest are always among them: they take the last
    places when their own rank is lower. One option may carry several marks. `whole` says that the job's hours are what
    is rented: the worst case lasts all of them, and needing more is late. `to_run` says that something is to be bought,
    so a cloud that runs programs only needs one.
    """
    cases = _Cases(job, policy, capabilities_by_cloud, whole=whole)
    images = {cloud: policy.capabilities_of(job.image or policy.image(cloud)) for cloud in capabilities_by_cloud}
    left_out: dict[str, list[str]] = {}
    kept = _Field(job, policy, cases)
    for offer in offers:
        able = capabilities_by_cloud.get(offer.cloud)
        code = "cloud_unknown" if able is None else reason(offer, job, policy, able.free, images[offer.cloud])
        if code is None and to_run and able is not None and able.batch and not job.run:
            code = "program"
        code = code or kept.add(offer)
        if code is not None:
            left_out.setdefault(code, []).append(offer.id)
    count = max(policy.options_shown if top is None else top, 1)

    def costs(offer: Offer) -> Estimate:
        return estimate(offer, job, policy, capabilities_by_cloud[offer.cloud], cases.run(offer), whole=whole)

    free = frozenset(cloud for cloud, able in capabilities_by_cloud.items() if able.free)
    shown = _shown(kept, count, free) if kept.near else []
    least_usd = shown[0][1].expected_usd if shown else _ZERO
    options = (_option(place, one, marks, costs(one.offer), least_usd, policy) for place, one, marks in shown)
    return Ranked(
        options=tuple(options),
        excluded=tuple(excluded(code, left_out[code]) for code in EXCLUSIONS if code in left_out),
        answered=len(kept.near),
    )


def _score(offer: Offer, job: JobRequest, policy: Policy, case: _Case) -> _Scored:
    """The keys to sort by. Each later key only breaks ties, and better is always smaller, so that no offer ever stands
    above one that is at least as good in everything."""
    expected = sum(parts(offer, case.scenario, policy), Decimal(0))
    trusted = reliability(offer, policy)
    risk = _near(offer, case, trusted, policy)[1].quantize(_MICRO)
    facts = (int(offer.spot), -int(offer.datacenter or 0), -int(offer.verified or 0))
    place = job.candidates.index(offer.cloud) if job.candidates else 0
    stock = -_STOCK[offer.stock]
    price = offer.price_usd_h or Decimal(0)
    size = (case.scenario.work_h, -offer.memory_gb, -offer.gpu_count)
    return _Scored(
        offer=offer,
        expected_usd=expected,
        risk_usd=risk,
        order=(case.tier, expected + risk, price, -trusted, *facts, stock, *size, place, offer.id),
    )


_STOCK = {None: 0, Stock.NONE: 0, Stock.LOW: 0, Stock.MEDIUM: 1, Stock.HIGH: 2}


def _shown(found: _Field, count: int, free: frozenset[str]) -> list[tuple[int, _Scored, tuple[str, ...]]]:
    """The options to show with their place from 0 and their marks: first ones, then marked ones further down."""
    first = list(enumerate(found.cheapest(count)))
    stable, fastest = found.stable(), found.fastest()
    marked = [(stable, BEST_STABILITY), *([(fastest, FASTEST)] if fastest is not None else [])]
    below = sorted({place: one for (place, one), _ in marked if place >= len(first)}.items())
    kept = first if len(first) + len(below) <= count else first[: max(count - len(below), 1)]
    marks: dict[int, tuple[str, ...]] = {0: (BEST_COST,)}
    for (place, _), mark in marked:
        marks[place] = (*marks.get(place, ()), mark)
    return [
        (place, one, (*((FREE,) if one.offer.cloud in free else ()), *marks.get(place, ())))
        for place, one in (*kept, *below)
    ]


def _option(
    place: int, one: _Scored, marks: tuple[str, ...], costs: Estimate, least_usd: Decimal, policy: Policy
) -> RankedOption:
    why = _why(one, costs, marks, least_usd, policy)
    return RankedOption(one.offer, costs, place + 1, marks, why, one.risk_usd)


def _why(one: _Scored, costs: Estimate, marks: tuple[str, ...], first_usd: Decimal, policy: Policy) -> str:
    offer = one.offer
    kind = "spot" if offer.spot else "on-demand"
    known = "reported" if offer.reliability is not None else "assumed"
    trusted = f"{reliability(offer, policy):.1%} reliability ({known})"
    if FREE in marks:
        return _why_free(offer, costs)
    total = f"{usd(costs.expected_usd)} expected for {hours(costs.hours)} at {rate(offer.price_usd_h or Decimal(0))}"
    more = costs.expected_usd - first_usd
    dearer = f"{usd(abs(more))} {'more' if more >= 0 else 'less'} than the first"
    if BEST_COST in marks:
        lead = "Lowest expected total with its risk"
        lead += " and most stable" if BEST_STABILITY in marks else ""
        lead += " and fastest" if FASTEST in marks else ""
    elif BEST_STABILITY in marks:
        lead = f"Most stable{' and fastest' if FASTEST in marks else ''} for {dearer}"
    elif FASTEST in marks:
        lead = f"Fastest for {dearer}"
    else:
        lead = f"{dearer[0].upper()}{dearer[1:]}"
    risk = f"{usd(one.risk_usd)} counted for risk" if one.risk_usd else "no risk counted"
    late = f" It misses the goal by {hours(costs.late_hours)}." if costs.late_hours else ""
    guess = f" {' '.join(costs.unknown)}" if costs.unknown else ""
    return f"{lead}: {total}, {kind}, {trusted}, {risk}.{late}{guess}"


def _why_free(offer: Offer, costs: Estimate) -> str:
    """A free offer is compared with nothing that is paid: what it takes are hours of a quota."""
    left = "" if offer.available_for_s is None else f", of {hours(Decimal(offer.available_for_s) / 3600)} to be had"
    return f"Free: no dollars, but up to {hours(costs.hours)} of a quota{left}. {offer.warning}".strip()
