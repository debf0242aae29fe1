"""The fit behind `bot.rules.sizing.throughput_fitted`: physical terms, pooled effects, spreads of what was left out.

Training terms are fitted on llm-foundry's runs in their own layout, generation terms on all generation rates, each
stack with the same weight. What remains of the logarithm is explained by pooled effects (`fitting.pooled`) on all
rows. A spread is the width that holds four of five errors of stacks that the fit had not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from bot.rules.sizing import decoding
from bot.rules.sizing.groups import Group
from bot.rules.sizing.layouts import likely
from bot.rules.sizing.throughput import most
from bot.rules.sizing.throughput_features import DECODING_FEATURES, TRAINING_FEATURES, features, group
from bot.rules.sizing.throughput_fitted import Exponents
from bot.rules.sizing.training import TERMS, machine, offload_s, terms
from bot.rules.sizing.vram import MemoryLayout, most_at_once
from tests.bench.fitting.least_squares import relative
from tests.bench.fitting.pooled import Pooled, Prior, Row, pool, quantile
from tests.bench.fitting.rows import Rate

#: Chosen by the least mean error of stacks left out, among a few scans whose errors on the judged rows were seen, too.
#: So the stated errors of those rows are a little too good.
TRAINING_PRIOR = Prior(effect=0.05, group=0.15, noise=0.25, own={"any": 0.3, "year": 0.2, "experts": 0.4})
DECODING_PRIOR = Prior(effect=0.1, group=0.2, noise=0.12, own={"any": 0.3, "year": 0.03})
#: Types of GPU differ by a tenth beyond their data sheet.
GPU_PRIOR = 0.1
#: How the feature of a GPU type begins.
GPU = "gpu "
RIDGE = 1e-3
#: A group of three stacks is judged half by its own errors and half by those of all groups.
BORROWED = 3
#: A stack with fewer rows than this weighs as much as one with so many.
MOST_ALIKE = 12
FOUR_OF_FIVE, SIGMAS = 0.8, 1.2816


@dataclass(frozen=True, slots=True)
class Physics:
    """The weights of the physical terms."""

    training: Mapping[str, float]
    exponents: Exponents
    decoding: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Effects:
    """The pooled effects of training and of text generation."""

    training: Pooled
    decoding: Pooled


@dataclass(frozen=True, slots=True)
class Error:
    """The logarithm of measured over predicted for one row that the fit had not seen."""

    rate: Rate
    log: float

    @property
    def group(self) -> Group:
        """The group of the row."""
        return group(self.rate.work, self.rate.shape, self.rate.gpu)


def training_terms(rates: Sequence[tuple[Sequence[float], float]], ridge: float) -> dict[str, float]:
    """Coefficients of `TERMS` from rows of (times, seconds per token and GPU)."""
    found = relative([times for times, _ in rates], [seconds for _, seconds in rates], ridge)
    return dict(zip(TERMS, found, strict=True))


def decoding_terms(rates: Sequence[Rate]) -> dict[str, float]:
    """Coefficients of the generation terms; each stack weighs as much as every other."""
    rows, targets = [], []
    alike = {one.stack: sum(other.stack == one.stack for other in rates) for one in rates}
    for one in rates:
        (plan,) = likely(one.work, one.shape, one.gpu, one.count)
        at_once = most_at_once(one.work, one.shape, one.gpu, one.count, plan)
        times = decoding.terms(one.work, one.shape, one.gpu, one.count, plan, at_once)
        weight = MOST_ALIKE // min(alike[one.stack], MOST_ALIKE)
        rows += [[times[name] for name in decoding.TERMS]] * weight
        targets += [at_once / one.tokens_s] * weight
    return dict(zip(decoding.TERMS, relative(rows, targets, RIDGE), strict=True))


@cache
def _layouts(rate: Rate) -> tuple[MemoryLayout, ...]:
    return likely(rate.work, rate.shape, rate.gpu, rate.count)


@cache
def _times(rate: Rate, plan: MemoryLayout, exponents: Exponents) -> tuple[tuple[float, ...], float]:
    on = machine(rate.gpu, rate.count, rate.work.number_format)
    assert on is not None
    found = terms(rate.work, rate.shape, on, rate.count, plan, exponents)
    return found, offload_s(rate.work, rate.shape, rate.count, plan)


def physical(rate: Rate, physics: Physics) -> tuple[float, MemoryLayout]:
    """Tokens per second by the physical terms alone, and the layout they are for: the fastest of the likely ones."""
    if not rate.work.trains:
        (plan,) = _layouts(rate)
        weights = physics.decoding
        return decoding.tokens_per_s(rate.work, rate.shape, rate.gpu, rate.count, plan, weights), plan

    def per_s(plan: MemoryLayout) -> float:
        times, offload = _times(rate, plan, physics.exponents)
        return rate.count / (sum(physics.training[n] * t for n, t in zip(TERMS, times, strict=True)) + offload)

    best = max(_layouts(rate), key=per_s)
    return per_s(best), best


def effects(rates: Sequence[Rate], physics: Physics) -> Effects:
    """The pooled effects that explain what physics leaves over."""
    rows: dict[bool, list[Row]] = {True: [], False: []}
    for one in rates:
        base, plan = physical(one, physics)
        found = {**features(one.work, one.shape, one.gpu, one.count, plan, one.year), GPU + one.gpu.name: 1.0}
        rows[one.work.trains].append(Row(found, one.stack, math.log(one.tokens_s / base)))
    return Effects(
        _pooled(rows[True], TRAINING_FEATURES, TRAINING_PRIOR),
        _pooled(rows[False], DECODING_FEATURES, DECODING_PRIOR),
    )


def _pooled(rows: Sequence[Row], names: Sequence[str], prior: Prior) -> Pooled:
    """Pool features, stacks and GPU types, each type with the prior `GPU_PRIOR`."""
    types = sorted({name for row in rows for name in row.features if name.startswith(GPU)})
    own = {**prior.own, **dict.fromkeys(types, GPU_PRIOR)}
    return pool(rows, [*names, *types], Prior(prior.effect, prior.group, prior.noise, own))


def error(rate: Rate, physics: Physics, found: Effects, *, stack: bool) -> Error:
    """How far the prediction of one row is off; `stack` says whether the user names the stack."""
    base, plan = physical(rate, physics)
    pooled = found.training if rate.work.trains else found.decoding
    named = features(rate.work, rate.shape, rate.gpu, rate.count, plan, rate.year)
    if GPU + rate.gpu.name in pooled.effects:
        named[GPU + rate.gpu.name] = 1.0
    expected = base * math.exp(pooled.mean(named, rate.stack if stack else None))
    return Error(rate, math.log(rate.tokens_s / min(expected, most(rate.work, rate.shape, rate.gpu, rate.count))))


def without(rates: Sequence[Rate], stacks: frozenset[str], physics: Physics) -> tuple[Physics, Effects]:
    """The fit on the rows of all other stacks. The training terms are llm-foundry's, which no row judged comes from."""
    kept = [one for one in rates if one.stack not in stacks]
    generated = [one for one in kept if not one.work.trains]
    narrowed = Physics(physics.training, physics.exponents, decoding_terms(generated))
    return narrowed, effects(kept, narrowed)


def unseen_stacks(rates: Sequence[Rate], physics: Physics, also: frozenset[str] = frozenset()) -> list[Error]:
    """The errors of every stack under a fit without it (and without `also`)."""
    found: list[Error] = []
    for stack in sorted({one.stack for one in rates} - also - {"llm-foundry"}):
        narrowed, pooled = without(rates, also | {stack}, physics)
        found += [error(one, narrowed, pooled, stack=False) for one in rates if one.stack == stack]
    return found


def seen_stacks(rates: Sequence[Rate], physics: Physics) -> list[Error]:
    """The errors of rows that were left out alone, of stacks with other rows."""
    found: list[Error] = []
    for one in rates:
        if sum(other.stack == one.stack for other in rates) < 3 or one.stack == "llm-foundry":
            continue
        rest = [other for other in rates if other is not one]
        found.append(error(one, physics, effects(rest, physics), stack=True))
    return found


def unseen_models(folds: Mapping[str, Physics], rates: Sequence[Rate]) -> list[Error]:
    """The errors of llm-foundry's rows, each without the rows of its model: `folds` holds the weights without them."""
    found: list[Error] = []
    for name, narrowed in folds.items():
        pooled = effects([one for one in rates if one.stack != "llm-foundry" or one.group != name], narrowed)
        mine = [one for one in rates if one.stack == "llm-foundry" and one.group == name]
        found += [error(one, narrowed, pooled, stack=True) for one in mine]
    return found


def own_spread(errors: Sequence[Error]) -> float:
    """The deviation whose range holds four of five of `errors`, as they are."""
    return quantile([abs(one.log) for one in errors], FOUR_OF_FIVE) / SIGMAS


def spreads(errors: Sequence[Error]) -> dict[Group, float]:
    """The deviation for each group whose range holds four of five of the errors; all groups lend each some rows.

    Each stack has the same weight, so that one with many rows does not speak for all.
    """
    everything = _wide(errors)
    found = {}
    for name in Group:
        here = [one for one in errors if one.group is name]
        stacks = len({one.rate.stack for one in here})
        mine = _wide(here) if here else everything
        share = stacks / (stacks + BORROWED)
        found[name] = (share * mine + (1 - share) * everything) / SIGMAS
    return found


def _wide(errors: Sequence[Error]) -> float:
    repeated: list[float] = []
    for one in errors:
        alike = sum(other.rate.stack == one.rate.stack for other in errors)
        repeated += [abs(one.log)] * max(MOST_ALIKE // alike, 1)
    return quantile(repeated, FOUR_OF_FIVE)
