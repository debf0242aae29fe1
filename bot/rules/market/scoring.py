"""Score one offer exactly: its expected total, its penalty for risk, and everything that breaks a tie.

This is the definition of the order. `market.vectorized` only saves work: it computes the same sums for a whole market
in floating point, and asks here wherever its rounding could decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.parts import Scenario, chance_in, ends_h, parts, reliability, scenarios, wall_h
from bot.rules.policy.policy import Policy
from bot.rules.sizing.host_speed import HostSpeed
from bot.rules.sizing.interruptions import losses_per_h, lost_within
from bot.rules.sizing.run_time import RunTime, run_time
from bot.rules.viability.host import host_gb, too_little
from bot.rules.viability.interconnect import host_speed
from bot.rules.viability.obstacles import Obstacle
from ledger.kernel import money
from providers.capabilities import Capabilities
from providers.contract import Offer, Stock

#: Tiers that rank options before any price is looked at.
IN_TIME, TIGHT, LATE, UNKNOWN_TIME = range(TIERS := 4)

_ZERO = Decimal(0)
#: The share of the work that losing the host repeats on average.
_HALF = Decimal("0.5")

Order = tuple[Decimal | int | str, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """Hold one offer with its expected total and its penalty, both in dollars; the least `order` ranks first."""

    offer: Offer
    expected_usd: Decimal
    risk_usd: Decimal
    order: Order

    @property
    def total_usd(self) -> Decimal:
        """Return the dollars that the ranking compares."""
        return self.expected_usd + self.risk_usd


@dataclass(frozen=True, slots=True)
class Case:
    """Describe how a job runs on one number of one GPU of one cloud: its time, its tier, and its expected scenario.

    `tier` is that of an offer on which the run is done by `ends_h`, None where nobody named a time. `risk_h` and, for
    spot offers, `spot_risk_h` are the hours that the chance of losing the host during the run is counted for as a
    penalty. `host_gb` is the memory that the host must have; with `offloads` the run keeps a part of its state there.
    """

    run: RunTime | None
    tier: int
    scenario: Scenario
    risk_h: Decimal
    spot_risk_h: Decimal
    host_gb: Decimal = _ZERO
    offloads: bool = False
    ends_h: Decimal | None = None

    @property
    def tight(self) -> bool:
        """Whether the run leaves hardly any of the GPUs' memory, so that its offers are never marked as best."""
        return self.run is not None and self.run.fit is not None and self.run.fit.tight


class Cases:
    """Keep one case per cloud, GPU, number and speed of the host, since all offers of those take the same time."""

    def __init__(
        self,
        job: JobRequest,
        policy: Policy,
        able: Mapping[str, Capabilities],
        *,
        whole: bool,
        own: OwnHistory = NO_HISTORY,
    ) -> None:
        self.job = job
        self.policy = policy
        self._able = able
        self._whole = whole
        self._own = own
        self._work = workload_of(job)
        self._volume = None if self._work is None else self._work.volume
        self._runs: dict[tuple[str, int, HostSpeed], RunTime] = {}
        self._placed: dict[tuple[str, str, int, HostSpeed, bool], RunTime] = {}
        self._known: dict[str | tuple[str, str, int, HostSpeed, bool], Case] = {}

    def of(self, offer: Offer) -> Case:
        """Return the case of an offer."""
        key = offer.cloud if self._work is None else self._same(offer)
        found = self._known.get(key)
        if found is None:
            run = self.run(offer)
            expected = scenarios(self.job, self.policy, self._able[offer.cloud], run, whole=self._whole)[0]
            # What is expected of a rental by the hour leaves out interruptions, except of spot offers, so they count as
            # risk alone.
            weight = self.policy.risk_weight + (_HALF if run is None else _ZERO)
            at_best = TIERS * _place(offer, self.job) + _tier(run)
            found = Case(run, at_best, expected, weight * expected.work_h, self.policy.risk_weight * expected.work_h)
            found = replace(found, ends_h=None if run is None else ends_h(run, self.job, whole=self._whole))
            if self._work is not None and run is not None and run.fit is not None:
                layout = run.fit.plan
                found = replace(found, host_gb=host_gb(self._work, layout, offer.gpu_count), offloads=layout.offload)
            self._known[key] = found
        return found

    def run(self, offer: Offer) -> RunTime | None:
        """Return the time of the work on an offer's GPUs; None where only hours are asked for."""
        if self._work is None:
            return None
        key = self._same(offer)
        if key not in self._placed:
            anywhere = offer.gpu, offer.gpu_count, host_speed(offer)
            if anywhere not in self._runs:
                gpu, count, host = anywhere
                self._runs[anywhere] = run_time(self._work, gpu, count, self.job.hours, self._own.runs, host)
            found = self._runs[anywhere].at(offer.cloud, offer.region)
            self._placed[key] = self._own.started(found, self.job, offer.cloud, offer.gpu, self._able[offer.cloud])
        return self._placed[key]

    @property
    def by_host(self) -> bool:
        """Whether the speed of its host changes the time of an offer: where a run is described."""
        return self._work is not None

    def _same(self, offer: Offer) -> tuple[str, str, int, HostSpeed, bool]:
        """Return what offers share that take the same time."""
        return offer.cloud, offer.gpu, offer.gpu_count, host_speed(offer), self._beside(offer)

    def _beside(self, offer: Offer) -> bool:
        """Whether the data of the run lie in the offer's own data center."""
        return self._volume is not None and self._volume.beside(offer.cloud, offer.region)


def _place(offer: Offer, job: JobRequest) -> int:
    """Return how many clouds come before that of an offer where the job names them in order; 0 otherwise."""
    named = job.clouds_in_order and offer.cloud in job.candidates
    return job.candidates.index(offer.cloud) if named else 0


def _tier(run: RunTime | None) -> int:
    if run is None:
        return IN_TIME
    if not run.known:
        return UNKNOWN_TIME
    return TIGHT if run.fit is not None and run.fit.tight else IN_TIME


def tier(offer: Offer, case: Case, policy: Policy) -> int:
    """Return the tier of an offer: a run that is expected to miss its time ranks below those that reach it."""
    if case.ends_h is None or wall_h(offer, chance_in(offer, case.scenario, policy), case.scenario) <= case.ends_h:
        return case.tier
    return case.tier - case.tier % TIERS + LATE


def unsuited(offer: Offer, case: Case) -> str | None:
    """Return the reason to leave an offer out that depends on the time and the memory of the work."""
    if case.run is None:
        return None
    if not case.run.fits:
        return Obstacle.VRAM
    if too_little(offer, case.host_gb, offloads=case.offloads):
        return Obstacle.RAM
    short = offer.available_for_s is not None and offer.available_for_s < needed_s(case.run)
    return "too_short" if short else None


def needed_s(run: RunTime) -> Decimal:
    """Return for how many seconds an offer must be available."""
    return run.hours.expected * 3600


def score(offer: Offer, cases: Cases) -> Scored:
    """Compute an offer's total, penalty and sort keys.

    Each later key only breaks ties, and better is always smaller, so that no offer ever ranks above one that is at
    least as good in everything.
    """
    job, policy, case = cases.job, cases.policy, cases.of(offer)
    expected = sum(parts(offer, case.scenario, policy), _ZERO)
    price = offer.price_usd_h or _ZERO
    hourly = price - min(max(offer.storage_usd_h, _ZERO), price)
    risk_h = case.spot_risk_h if offer.spot else case.risk_h
    during = lost_within(chance_in(offer, case.scenario, policy), case.scenario.window_h, case.scenario.work_h)
    risk = money.amount_even(risk_h * during * hourly)
    facts = (int(offer.spot), -int(offer.datacenter or 0), -int(offer.verified or 0))
    place = job.candidates.index(offer.cloud) if job.candidates else 0
    size = (case.scenario.work_h, -offer.memory_gb, -offer.gpu_count)
    terms = (price, -reliability(offer, policy), *facts, -stock_rank(offer.stock), *size, place, offer.id)
    return Scored(offer, expected, risk, (tier(offer, case, policy), expected + risk, *terms))


def expected_losses(offer: Offer, cases: Cases) -> Decimal:
    """Return how many losses of the host are expected during the run; the fewer, the more reliable is the offer."""
    case = cases.of(offer)
    chance = chance_in(offer, case.scenario, cases.policy)
    return losses_per_h(chance, case.scenario.window_h) * case.scenario.work_h


def stock_rank(stock: Stock | None) -> int:
    """Rank how much of an offer is left: more is better, unknown is none."""
    return 2 if stock is Stock.HIGH else 1 if stock is Stock.MEDIUM else 0
