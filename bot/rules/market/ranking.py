"""Rank the offers that fit a job by the expected total run cost with its risk; never by the hourly price alone.

The rank follows from the expected total plus a penalty for risk: the policy's `risk_weight` x the chance of losing the
host x the compute cost. Where the work is known, each offer is counted with the hours that it needs; offers that miss
the goal rank below those that reach it, and below them offers whose time is unknown. Linear in the offers but for one
sort.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.market.columns import Floats, Indices, Prices, examples, kind_names, kinds, plain
from bot.rules.market.estimate import Estimate, estimate
from bot.rules.market.filters import EXCLUSIONS, Excluded, excluded, needs_by_cloud, reason, terms
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.own_sessions import record_said
from bot.rules.market.parts import reliability
from bot.rules.market.scoring import Cases, Scored, score
from bot.rules.market.spot_choice import spot_said
from bot.rules.market.vectorized import Field
from bot.rules.policy.policy import Policy
from bot.rules.values.mounts import Mount, mounts_of, run_without_agent
from bot.rules.values.phrases import about_hours, rate, usd
from bot.rules.values.phrases import reliability as reliability_said
from bot.rules.viability.compatibility import Needs
from bot.rules.viability.compatibility import in_short as refused_because
from bot.rules.viability.obstacles import Obstacle
from providers.capabilities import Capabilities, PortAccess
from providers.completeness import ProofOfWhole
from providers.contract import Offer

BEST_COST = "best cost-efficiency"
#: In place of the one above where somebody named the clouds in order, since a later one may be cheaper.
FIRST_CLOUD = "first of your clouds"
BEST_STABILITY = "best stability"
#: The mark where the cloud reports no reliability, so that what was compared is the policy's assumption.
ASSUMED_STABILITY = "best stability (assumed)"
FREE = "free"
FASTEST = "fastest within budget"
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class RankedOption:
    """Hold one offer that fits the job.

    `rank` counts from 1 over those that are shown, so a plan and a request number them alike. `why` is one sentence.
    `risk_usd` is what the ranking adds to the expected total.
    """

    offer: Offer
    estimate: Estimate
    rank: int
    marks: tuple[str, ...]
    why: str
    risk_usd: Decimal = _ZERO


@dataclass(frozen=True, slots=True)
class Ranked:
    """Hold the options to show, how many offers fit the job in all, and what was left out and why.

    `refused` says which offer would have been cheaper per hour than the first option, and why it cannot run what was
    asked; where nothing fits, which one would have been the cheapest. It is empty where no such offer is cheaper.
    """

    options: tuple[RankedOption, ...]
    excluded: tuple[Excluded, ...]
    answered: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class OrderedMarket:
    """Hold every offer that fits a job, the best ranked first, and what was left out and why.

    `prices` are about their dollars per hour: offers with different ones have different prices.
    """

    offers: tuple[Offer, ...]
    prices: Floats
    excluded: tuple[Excluded, ...]
    _cases: Cases

    def expected_usd(self, offer: Offer) -> Decimal:
        """Return the exact expected total of one of the offers in dollars, computed now."""
        return score(offer, self._cases).expected_usd

    def scored(self) -> list[Scored]:
        """Return all of them with their exact totals, computed now."""
        return [score(offer, self._cases) for offer in self.offers]


def rank(
    offers: Iterable[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities_by_cloud: Mapping[str, Capabilities],
    *,
    proof: ProofOfWhole | None,
    top: int | None = None,
    whole: bool = False,
    to_run: bool = False,
    own: OwnHistory = NO_HISTORY,
) -> Ranked:
    """Return the best `top` options (the policy's `options_shown` unless given) and everything that was left out.

    The most stable option and, where times follow from the work, the fastest are always among them: they take the last
    places when their own rank is lower. One option may carry several marks. `whole` says that the job's hours are what
    is rented: the worst case lasts all of them, and needing more is late. `to_run` says that something is to be bought,
    so a cloud that runs programs only needs one. `own` is what this installation's sessions say about rates, starts and
    losses. Without a `proof` that the offers are the whole market, no option is said to be the cheapest, the most
    reliable or the fastest.
    """
    market = tuple(offers)
    cases = Cases(job, policy, capabilities_by_cloud, whole=whole, own=own)
    found = _answering(market, cases, capabilities_by_cloud, to_run=to_run)
    count = max(policy.options_shown if top is None else top, 1)

    def costs(offer: Offer) -> Estimate:
        return estimate(offer, job, policy, capabilities_by_cloud[offer.cloud], cases.run(offer), whole=whole)

    free = frozenset(cloud for cloud, able in capabilities_by_cloud.items() if able.free)
    shown = _shown(found.field, count, free, cases, proof) if len(found.field) else []
    least_usd = shown[0][1].expected_usd if shown else _ZERO
    both = job.spot is SpotPolicy.ANY and bool(shown)
    spot, other = (found.field.cheapest_kind(spot=one, free=free) if both else None for one in (True, False))
    beside = spot_said(spot, other, cases)
    options = (
        _option(n, one, marks, costs(one.offer), least_usd, policy, beside) for n, (_, one, marks) in enumerate(shown)
    )
    refused = found.cheapest_refused(shown[0][1].offer if shown else None, proof)
    return Ranked(tuple(options), found.excluded, len(found.field), refused)


def ordered(
    offers: Iterable[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities_by_cloud: Mapping[str, Capabilities],
    *,
    whole: bool = False,
    to_run: bool = False,
    own: OwnHistory = NO_HISTORY,
) -> OrderedMarket:
    """Return every offer that fits in the order of `rank`, and everything that was left out with its reason."""
    cases = Cases(job, policy, capabilities_by_cloud, whole=whole, own=own)
    found = _answering(tuple(offers), cases, capabilities_by_cloud, to_run=to_run)
    fitting, prices = found.field.ordered()
    return OrderedMarket(tuple(fitting), prices, found.excluded, cases)


def _mounting(mounts: Sequence[Mount], able: Capabilities, *, agent: bool) -> str | None:
    """Return why a cloud's machines can't get a job's files; None where they can."""
    if any(one.needs_fuse for one in mounts) and not able.fuse:
        return "fuse"
    return None if agent or (able.batch and run_without_agent(mounts)) else "mounts"


@dataclass(frozen=True, slots=True)
class _Answering:
    field: Field
    excluded: tuple[Excluded, ...]
    why: Indices
    market: Sequence[Offer]
    prices: Prices
    cases: Cases
    needs: Mapping[str, Needs]
    free: frozenset[str]

    def cheapest_refused(self, first: Offer | None, proof: ProofOfWhole | None) -> str:
        """Say which offer that cannot run what was asked is the cheapest per hour; empty unless it is below `first`."""
        lead = "Cheapest per hour, but skipped" if proof else "Cheaper per hour, but skipped" if first else "Skipped"
        refused = np.flatnonzero(np.isin(self.why, _OBSTACLES))
        price = self.prices.price.floats[refused]
        for place in refused[np.argsort(price, kind="stable")].tolist():
            offer, least = self.market[place], None if first is None else first.price_usd_h
            if least is not None and not (offer.price_usd_h or _ZERO) < least:
                return ""
            if terms(offer, self.cases.job, free=offer.cloud in self.free) is None:
                said = refused_because(offer, _CODES[int(self.why[place])], self.needs[offer.cloud])
                return f"{lead}: {rate(offer.price_usd_h or _ZERO)} at {offer.cloud}. {said}."
        return ""


def _answering(market: Sequence[Offer], cases: Cases, able: Mapping[str, Capabilities], *, to_run: bool) -> _Answering:
    """Separate the offers that fit the job from the others, by their reason."""
    job, policy = cases.job, cases.policy
    needs, mounts = needs_by_cloud(job, policy, able), mounts_of(job.mounts)

    def code(offer: Offer) -> str | None:
        known = able.get(offer.cloud)
        if known is None:
            return "cloud_unknown"
        found = reason(offer, job, policy, known.free, needs[offer.cloud])
        if found is None and job.image and not known.images:
            return "own_image"
        if found is None and job.ports and known.ports is PortAccess.NONE:
            return "ports"
        agent = known.has_agent(own_image=job.image is not None)
        if found is None and job.secrets and not agent:
            return "secrets"
        if found is None and job.queue and not agent:
            return "queue"
        if found is None and mounts:
            found = _mounting(mounts, known, agent=agent)
        if found is None and job.attempts > 1 and not agent:
            return "attempts"
        if found is None and job.install and not agent:
            return "install_agent"
        return "program" if found is None and to_run and known.batch and not job.run else found

    prices = Prices.of(market)
    kind = kinds(market, kind_names(job, policy, needs))
    fine = plain(market, prices, job, policy)
    why = np.zeros(len(market), dtype=np.intp)
    for place in np.flatnonzero(~fine).tolist():
        why[place] = _NUMBERS[code(market[place])]
    # Plain offers share their reason with all of their kind.
    places = np.flatnonzero(fine)
    first, of = examples(kind, places)
    why[places] = np.array([_NUMBERS[code(market[place])] for place in first], dtype=np.intp)[of]
    field = Field(market, prices, np.flatnonzero(why == 0), kind, cases)
    for place, left in field.left_out.items():
        why[place] = _NUMBERS[left]
    free = frozenset(cloud for cloud, known in able.items() if known.free)
    return _Answering(field, tuple(_excluded(market, why)), why, market, prices, cases, needs, free)


#: Reasons as numbers, so that a column can hold them; 0 is none.
_NUMBERS: Mapping[str | None, int] = {None: 0, **{code: n for n, code in enumerate(EXCLUSIONS, 1)}}
_CODES: Mapping[int, Obstacle] = {_NUMBERS[one.value]: one for one in Obstacle}
_OBSTACLES = np.array(sorted(_CODES), dtype=np.intp)


def _excluded(market: Sequence[Offer], why: Indices) -> Iterator[Excluded]:
    present = set(np.unique(why).tolist())
    for code, number in _NUMBERS.items():
        if code is not None and number in present:
            yield excluded(code, [market[place].id for place in np.flatnonzero(why == number).tolist()])


@dataclass(frozen=True, slots=True)
class Superlative:
    """Say what an offer is best at, which takes the proof that it was compared with the whole market."""

    mark: str
    proof: ProofOfWhole


def _shown(
    found: Field, count: int, free: frozenset[str], cases: Cases, proof: ProofOfWhole | None
) -> list[tuple[int, Scored, tuple[str, ...]]]:
    """Return the options to show with their place from 0 and their marks: first ones, then best ones further down.

    An offer whose memory is tight may fail, so it is best at nothing. Without a proof no offer is.
    """
    first = list(enumerate(found.cheapest(count)))
    stable, fastest = found.stable(), found.fastest()
    stability = BEST_STABILITY if stable[1].offer.reliability is not None else ASSUMED_STABILITY
    best = FIRST_CLOUD if cases.job.clouds_in_order else BEST_COST
    named = [(first[0], best), (stable, stability), *([(fastest, FASTEST)] if fastest is not None else [])]
    best_at = [(one, mark) for one, mark in named if not cases.of(one[1].offer).tight]
    below = sorted({place: one for (place, one), _ in best_at if place >= len(first)}.items())
    marked = [(one, Superlative(mark, proof)) for one, mark in best_at if proof is not None]
    kept = first if len(first) + len(below) <= count else first[: max(count - len(below), 1)]
    marks: dict[int, tuple[str, ...]] = {}
    for (place, _), mark in marked:
        marks[place] = (*marks.get(place, ()), mark.mark)
    return [
        (place, one, (*((FREE,) if one.offer.cloud in free else ()), *marks.get(place, ())))
        for place, one in (*kept, *below)
    ]


def _option(
    place: int, one: Scored, marks: tuple[str, ...], costs: Estimate, least_usd: Decimal, policy: Policy, beside: str
) -> RankedOption:
    why = _why(one, costs, marks, least_usd if place else None, policy)
    said = " ".join(filter(None, (why, "" if place else beside, costs.data)))
    return RankedOption(one.offer, costs, place + 1, marks, said, one.risk_usd)


def _why(one: Scored, costs: Estimate, marks: tuple[str, ...], first_usd: Decimal | None, policy: Policy) -> str:
    offer = one.offer
    kind = "Spot" if offer.spot else "On-demand"
    known = "reported" if offer.reliability is not None else "assumed"
    known = known if offer.own is None else record_said(offer.own)
    trusted = f"{reliability_said(reliability(offer, policy))} reliability ({known})"
    if FREE in marks:
        return _why_free(offer, costs)
    if FIRST_CLOUD in marks:
        return f"The cheapest at {offer.cloud}, the first of your clouds that has one: about {usd(costs.expected_usd)}."
    best = ["cheapest"] if BEST_COST in marks else []
    best += ["most reliable"] if BEST_STABILITY in marks else []
    best += ["most reliable (estimate)"] if ASSUMED_STABILITY in marks else []
    best += ["fastest"] if FASTEST in marks else []
    cost = f"about {usd(costs.expected_usd)} for {about_hours(costs.hours)}"
    if first_usd is not None:
        more = costs.expected_usd - first_usd
        cost = f"{usd(abs(more))} {'more' if more >= 0 else 'less'} than #1"
    lead = " and ".join(best)
    said = f"{lead}: {cost}" if lead else cost
    late = f" It misses the goal by {about_hours(costs.late_hours)}." if costs.late_hours else ""
    guess = f" {' '.join(costs.unknown)}" if costs.unknown else ""
    tight = " Its memory is nearly full, so it may fail." if costs.tight else ""
    return f"{said[0].upper()}{said[1:]}. {kind}, {trusted}.{late}{tight}{guess}"


def in_short(marks: Sequence[str], beside: str = "") -> str:
    """Say in one to four words why an offer is recommended, or what another one is best at; empty for nothing.

    `beside` is what makes it the cheapest where another offer has a lower total: "reliable", "in time".
    """
    if FREE in marks or FIRST_CLOUD in marks:
        return FREE if FREE in marks else FIRST_CLOUD
    best = [f"cheapest {beside}".strip()] if BEST_COST in marks else []
    best += ["most reliable"] if BEST_STABILITY in marks and not beside else []
    best += ["most reliable (estimate)"] if ASSUMED_STABILITY in marks and not best else []
    best += ["fastest"] if FASTEST in marks else []
    return ", ".join(best)


def _why_free(offer: Offer, costs: Estimate) -> str:
    """Explain a free offer: it costs hours of a quota, so it is not compared with paid ones."""
    left = "" if offer.available_for_s is None else f" ({about_hours(Decimal(offer.available_for_s) / 3600)} left)"
    return f"Free: it uses up to {about_hours(costs.hours)} of a quota{left}. {offer.warning}".strip()
