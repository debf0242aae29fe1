"""Choose the model that a budget trains: its size, its tokens, and the GPUs on which its loss is least.

For every GPU and number that is for sale, money becomes hours through the estimate of every plan, hours become tokens
through the throughput of each size, and size and tokens become a loss through the scaling law. A size counts only where
it fits the GPUs, the host and the disk. The total that is expected of the run stays inside the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.market.filters import Excluded
from bot.rules.market.own_history import NO_HISTORY, OwnHistory
from bot.rules.market.parts import Scenario, chance_in, parts, scenarios, wall_h
from bot.rules.market.ranking import RankedOption, ordered, rank
from bot.rules.market.sizing_question import SERVED, SizingQuestion
from bot.rules.policy.policy import Policy
from bot.rules.pricing.hours_cap import SHORTEST_HOURS
from bot.rules.sizing.run_time import RunTime, run_time
from bot.rules.sizing.scaling_law import (
    FLOOR_SIGMA,
    LAW,
    TRAINING_FLOPS,
    compute_optimum,
    lifetime_compute_optimum,
)
from bot.rules.sizing.throughput import Throughput, hours_at, tokens_per_s
from bot.rules.sizing.throughput_data import RANGE_SIGMAS
from bot.rules.sizing.workload import WorkKind, Workload
from bot.rules.viability.host import host_gb, run_disk, too_little
from bot.rules.viability.interconnect import host_speed
from providers.capabilities import Capabilities
from providers.contract import Offer
from providers.gpus.table import GPUS

#: So many models are shown, each on another GPU.
SHOWN = 5
_DECADE = (10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 56, 63, 70, 80, 90)
#: Sizes that people name, from 10M to 9T parameters.
SIZES = tuple(step * 10**power for power in range(6, 12) for step in _DECADE)
#: Tokens per parameter below which the law has no runs to rest on.
LEAST_TOKENS = 1
#: Losses are compared as they are shown; of those that look the same, the faster run is better.
_DIGITS = 2
_ZERO, _HOUR_S = Decimal(0), 3600
#: A total this near below the budget is the budget.
_NEAR = Decimal("0.998")
_TRIES = 12
#: So many sizes to each side are looked at before one counts as the best.
_AROUND = 3
#: FLOPs that a dollar buys at the cheapest: an RTX 4090 at half of its peak for $0.25 an hour.
_FLOPS_PER_USD = 1.2e18


@dataclass(frozen=True, slots=True)
class SizedModel:
    """Hold one model that the budget trains, and the offer to train it on.

    `loss_low` and `loss_high` hold four of five runs as far as throughput and the law's floor are known. `serving_usd`
    is what the tokens that it serves later cost on the same GPUs.
    """

    params: int
    tokens: int
    loss: float
    loss_low: float
    loss_high: float
    option: RankedOption
    job: JobRequest
    serving_usd: Decimal

    @property
    def total_usd(self) -> Decimal:
        """Return what training and serving are expected to cost together."""
        return self.option.estimate.expected_usd + self.serving_usd


@dataclass(frozen=True, slots=True)
class Sized:
    """Hold the models that a budget trains, the least loss first and each on another GPU, and what was left out."""

    question: SizingQuestion
    models: tuple[SizedModel, ...]
    excluded: tuple[Excluded, ...]
    answered: int


_Order = tuple[float, Decimal]


@dataclass(frozen=True, slots=True)
class _Found:
    params: int
    tokens: int
    loss: float
    hours: Decimal
    serving_usd: Decimal
    rate: Throughput

    @property
    def order(self) -> _Order:
        """Return the loss as it is shown, and then the hours."""
        return round(self.loss, _DIGITS), self.hours


def disk_guess(question: SizingQuestion) -> JobRequest:
    """Return the job with a model about as large as the budget could train, by which disks are sized.

    Where the data are few, a larger model is all that the money can buy.
    """
    flops, data = float(question.budget_usd) * _FLOPS_PER_USD, question.work.total_tokens
    params = compute_optimum(flops).params
    if data:
        params = max(params, min(flops / TRAINING_FLOPS / data, data / LEAST_TOKENS))
    return _job(question, min(SIZES, key=lambda size: abs(math.log(size / params))), 10**9)


def model_for_budget(
    offers: Iterable[Offer],
    question: SizingQuestion,
    policy: Policy,
    able: Mapping[str, Capabilities],
    own: OwnHistory = NO_HISTORY,
) -> Sized:
    """Return the models that the question's budget trains on what is for sale. Free clouds are left out."""
    paid = [one for one in offers if one.cloud not in able or not able[one.cloud].free]
    market = ordered(paid, replace(question.job, budget_cap_usd=None), policy, able, own=own)
    groups: dict[tuple[str, int], list[Offer]] = {}
    for offer in market.offers:
        if offer.gpu in GPUS:
            groups.setdefault((offer.gpu, offer.gpu_count), []).append(offer)
    first: dict[str, tuple[_Order, _Solver]] = {}
    for (gpu, _), sold in groups.items():
        solver = _Solver(sold, question, policy, able[sold[0].cloud], own)
        found = solver.guess()
        if found is not None and (gpu not in first or found.order < first[gpu][0]):
            first[gpu] = found.order, solver
    # The guess decides between GPUs; only the ones that may be shown are searched to the end.
    near = sorted(first.values(), key=lambda one: (one[0], one[1].offer.id))[: SHOWN + 1]
    solved = [(found, solver.sold) for _, solver in near if (found := solver.best()) is not None]
    models = [
        model
        for found, sold in sorted(solved, key=lambda one: (one[0].order, one[1][0].id))
        for model in _priced(found, sold, question, policy, able, own)
    ]
    return Sized(question, tuple(models[:SHOWN]), market.excluded, len(market.offers))


def _priced(
    found: _Found,
    sold: Sequence[Offer],
    question: SizingQuestion,
    policy: Policy,
    able: Mapping[str, Capabilities],
    own: OwnHistory,
) -> Iterator[SizedModel]:
    """Yield the model on the offer that a plan of its run recommends among these."""
    job = _job(question, found.params, found.tokens, sold[0])
    low, high = (LAW.loss(found.params, found.tokens * rate / found.rate.expected) for rate in _range(found.rate))
    floor = RANGE_SIGMAS * FLOOR_SIGMA
    for option in rank(sold, job, policy, able, proof=None, top=1, own=own).options:
        yield SizedModel(
            params=found.params,
            tokens=found.tokens,
            loss=found.loss,
            loss_low=found.loss - math.hypot(found.loss - high, floor),
            loss_high=found.loss + math.hypot(low - found.loss, floor),
            option=option,
            job=job,
            serving_usd=found.serving_usd,
        )


def _range(rate: Throughput) -> tuple[float, float]:
    return rate.low, rate.high


def _job(question: SizingQuestion, params: int, tokens: int, offer: Offer | None = None) -> JobRequest:
    """Return the job of a plan for one model, on the GPUs of an offer."""
    dropped = (f"{SERVED}=", "served_tokens=", "tokens=")
    kept = tuple(word for word in question.job.work if not word.startswith(dropped))
    job = replace(question.job, work=(f"model={written(params)}", f"tokens={written(tokens)}", *kept))
    if offer is None:
        return job
    gpu = replace(job.gpu, names=(offer.gpu,), count_min=offer.gpu_count, count_max=offer.gpu_count)
    return replace(job, gpu=gpu)


def written(count: int) -> str:
    """Write a count as the `/gpu` language reads it, exactly: `1.3B`, `850M`, `26.5B`."""
    for unit, scale in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= scale:
            return f"{(Decimal(count) / scale).normalize():f}{unit}"
    return str(count)


class _Solver:
    """Find the size of the least loss on the first of some offers with the same GPUs."""

    def __init__(
        self,
        sold: Sequence[Offer],
        question: SizingQuestion,
        policy: Policy,
        able: Capabilities,
        own: OwnHistory,
    ) -> None:
        self.sold = sold
        self.offer = sold[0]
        self._question = question
        self._policy = policy
        self._able = able
        self._own = own
        self._gpu = GPUS[self.offer.gpu]
        self._host = host_speed(self.offer)
        self._known: dict[int, _Found | None] = {}
        self._guessed = 0

    def guess(self) -> _Found | None:
        """Return nearly the model of the least loss; None where no size fits the offer or the budget."""
        at = self._start()
        while at >= 0 and self._at(at) is None:
            at -= 1 if at < len(_DECADE) else len(_DECADE) // 4
        found = self._at(at) if at >= 0 else None
        if found is None:
            return None
        # The loss is flat around its minimum, so the compute of the first guess is nearly enough.
        again = self._nearest(TRAINING_FLOPS * found.params * found.tokens)
        self._guessed = again if self._loss(again) < self._loss(at) else at
        return self._at(self._guessed)

    def best(self) -> _Found | None:
        """Return the model of the least loss among the named sizes, after a guess."""
        at, better = self._guessed, self._best_near(self._guessed)
        while better != at:
            at, better = better, self._best_near(better)
        return self._at(at)

    def _best_near(self, at: int) -> int:
        """Return the best of a few sizes around one: layouts change from size to size, and the loss with them."""
        return min(range(at - _AROUND, at + _AROUND + 1), key=lambda place: (self._loss(place), abs(place - at)))

    def _start(self) -> int:
        price = self.offer.price_usd_h or _ZERO
        hours = min(float(self._question.budget_usd / price), float(self._policy.max_hours_ever))
        peak = float(self._gpu.peak_bf16_tflops or 1) * 1e12
        return self._nearest(0.4 * peak * self.offer.gpu_count * hours * _HOUR_S)

    def _nearest(self, flops: float) -> int:
        served = float(self._question.work.served_tokens or 0)
        params = lifetime_compute_optimum(flops, served).params
        return min(range(len(SIZES)), key=lambda place: abs(math.log(SIZES[place] / params)))

    def _loss(self, place: int) -> float:
        found = self._at(place) if 0 <= place < len(SIZES) else None
        return math.inf if found is None else found.loss

    def _at(self, place: int) -> _Found | None:
        if place not in self._known:
            self._known[place] = self._solve(SIZES[place])
        return self._known[place]

    def _solve(self, params: int) -> _Found | None:
        """Return the most tokens that the budget trains this size on; None where it does not fit or pays for none."""
        offer, question = self.offer, self._question
        work = replace(question.work, total_params=params, model=written(params), tokens=10**9, served_tokens=None)
        run = run_time(work, offer.gpu, offer.gpu_count, _ZERO, self._own.runs, self._host)
        run = self._own.started(run.at(offer.cloud, offer.region), question.job, offer.cloud, offer.gpu, self._able)
        rate = run.throughput
        if rate is None or not self._fits(work, run):
            return None
        serving_usd = self._serving_usd(work)
        if serving_usd >= question.budget_usd:
            return None
        hours = self._hours(run, rate, question.budget_usd - serving_usd)
        if hours < SHORTEST_HOURS:
            return None
        tokens = int(rate.expected * float(hours) * _HOUR_S)
        tokens = _rounded_down(min(tokens, question.work.total_tokens or tokens))
        if tokens < params * LEAST_TOKENS:
            return None
        hours = Decimal(tokens) / Decimal(rate.expected) / _HOUR_S
        return _Found(params, tokens, LAW.loss(params, tokens), hours, serving_usd, rate)

    def _fits(self, work: Workload, run: RunTime) -> bool:
        if run.fit is None or not run.fit.possible or run.fit.tight:
            return False
        layout, gpus = run.fit.plan, self.offer.gpu_count
        if too_little(self.offer, host_gb(work, layout, gpus), offloads=layout.offload):
            return False
        return run_disk(work).whole_gb <= self._question.job.disk_gb

    def _serving_usd(self, work: Workload) -> Decimal:
        """Return the dollars of generating the tokens to serve on the same GPUs: a model that trains there fits."""
        served = self._question.work.served_tokens
        if not served:
            return _ZERO
        serving = replace(work, kind=WorkKind.SERVING, tokens=None, goal_hours=None, global_batch=None)
        rate = tokens_per_s(serving, self._gpu, self.offer.gpu_count, runs=self._own.runs, host=self._host)
        hours = Decimal(served) / Decimal(rate.expected) / _HOUR_S if rate is not None else _ZERO
        return hours * (self.offer.price_usd_h or _ZERO)

    def _hours(self, run: RunTime, rate: Throughput, budget_usd: Decimal) -> Decimal:
        """Return for how long the run may last at the expected rate inside the budget, the goal and the policy."""
        offer, goal_h = self.offer, self._question.work.goal_hours
        # What may be requested is the run's worst case.
        limit_h = self._policy.max_hours_ever * Decimal(rate.low / rate.expected) / run.evaluated
        until = [goal_h] if goal_h is not None else []
        until += [Decimal(offer.available_for_s) / _HOUR_S] if offer.available_for_s is not None else []
        wall_limit_h = min(until, default=limit_h)
        hours = min(limit_h, budget_usd / (offer.price_usd_h or _ZERO))
        tries, fits = _TRIES, False
        while tries and not fits and hours >= SHORTEST_HOURS:
            case = self._expected(run, rate, hours)
            cost = sum(parts(offer, case, self._policy), _ZERO)
            lasts_h = wall_h(offer, chance_in(offer, case, self._policy), case)
            room = min(budget_usd / cost, wall_limit_h / lasts_h)
            fits = room >= 1 and (hours == limit_h or room * _NEAR <= 1)
            hours = hours if fits else min(limit_h, hours * room * (1 + _NEAR) / 2)
            tries -= 1
        return hours if fits else _ZERO

    def _expected(self, run: RunTime, rate: Throughput, hours: Decimal) -> Scenario:
        run = replace(run, hours=hours_at(hours * run.evaluated, rate))
        return scenarios(self._question.job, self._policy, self._able, run)[0]


def _rounded_down(tokens: int) -> int:
    """Return at most so many tokens, with three digits."""
    scale = int(10 ** max(len(str(tokens)) - 3, 0))
    return tokens // scale * scale
