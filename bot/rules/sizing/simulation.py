"""Simulate a run on one offer: how its wall-clock hours and its cost are distributed.

Two things are uncertain: the rate (lognormal, its range holds four of five runs) and how often the host is lost. Both
are cut into a fixed grid, so the same run always has the same result and no random number is drawn. The rate takes
`RATES` equally likely values. The number of losses is Poisson; where many are expected it is normal. The work that they
repeat takes three values with the mean and the deviation of its exact distribution.

Wall-clock hours = hours of work / goodput. Goodput is the share of the wall clock in which the run advances: the rest
are the start, downloads, checkpoints, repeated work and restarts. Evaluation is in the hours of work here;
`market.outlook` takes it out of the goodput.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bot.rules.sizing.interruptions import lost_time

Floats = NDArray[np.float64]

#: So many equally likely rates. A chance is exact to about half of one of them.
RATES = 201
#: Up to so many losses are counted one by one; beyond, their number is normal.
MOST_COUNTED = 60
_NORMAL_STEPS = 33
#: The range that is shown holds four of five runs.
LOW, HIGH = 0.1, 0.9
#: The shares of all runs at which a curve has a point.
CURVE = (0.01, 0.05, LOW, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, HIGH, 0.95, 0.99)
_LOW_AT, _HIGH_AT = CURVE.index(LOW), CURVE.index(HIGH)
#: Three values with the mean, the deviation and the first five moments of a normal one, and their chances.
_NODES = (-math.sqrt(3), 0.0, math.sqrt(3))
_CHANCES = (1 / 6, 2 / 3, 1 / 6)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Hold what decides how long a run takes, in hours: the same for all offers of one GPU, hazard and bandwidth.

    `work_h` is the median time of the work alone, and `sigma` the width of its range on the logarithm. `losses_per_h`
    is the hazard. `interval_h` is the work between two checkpoints, 0 where none are written. `before_h` is the time
    from the launch to the first step, `restart_h` that from a loss until work continues.
    """

    work_h: float
    sigma: float
    losses_per_h: float
    interval_h: float
    write_h: float
    restart_h: float
    before_h: float


@dataclass(frozen=True, slots=True)
class RunBill:
    """Hold what decides a run's cost: dollars per billed hour and per hour of work, and dollars paid once.

    The first `unbilled_h` of the wall clock are free. The rest is billed in steps of `step_h`, `minimum_h` at least.
    """

    usd_h: float
    work_usd_h: float
    once_usd: float
    unbilled_h: float = 0.0
    step_h: float = 0.0
    minimum_h: float = 0.0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Hold what was approved or asked for: the most dollars, and by when and for how much people want the run done.

    `most_h` is when the rental ends, None where its end is not decided yet.
    """

    cap_usd: float
    most_h: float | None = None
    goal_h: float | None = None
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """Hold the outcome: means, the range of four of five runs, and two chances.

    `hours` and `mean_usd` are those of the finished run. Its bill ends at the cap, so `usd_high` is never above it.
    `done` is the chance that the run is done by the goal, before the rental ends and within the cap. `within` is the
    chance that its bill is inside the budget; None without a budget. `goodput` is hours of work over hours of wall
    clock. The curves are the hours and dollars that the shares of `CURVE` stay below.
    """

    hours: float
    hours_low: float
    hours_high: float
    mean_usd: float
    usd_low: float
    usd_high: float
    goodput: float
    done: float
    within: float | None
    hours_curve: tuple[float, ...]
    usd_curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WallClock:
    """Hold the grid: hours of work and of wall clock in each of its points, and the chance of each point."""

    work_h: Floats
    wall_h: Floats
    chance: Floats

    def mean(self, values: Floats) -> float:
        """Return the mean of a value that each point has."""
        return float(np.dot(values, self.chance))

    def quantiles(self, values: Floats, *shares: float) -> list[float]:
        """Return the values below which these shares of all runs stay."""
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(self.chance[order])
        places = np.minimum(np.searchsorted(reached, np.array(shares) * reached[-1]), len(order) - 1)
        return [float(one) for one in values[order][places]]


@functools.lru_cache(maxsize=1024)
def wall_clock(run: RunTimes) -> WallClock:
    """Return the grid of a run's hours."""
    lost = lost_time(run.losses_per_h, run.interval_h, run.write_h, run.restart_h)
    work = run.work_h * np.exp(run.sigma * _rate_steps())
    written = run.write_h / run.interval_h if run.interval_h else 0.0
    losses, chance = _losses(lost.losses_per_h * work)
    nodes = np.array(_NODES)
    spent = losses[..., None] * lost.mean_h + np.sqrt(losses)[..., None] * lost.deviation_h * nodes
    wall = run.before_h + (work * (1 + written))[:, None, None] + np.maximum(spent, 0.0)
    every = chance[..., None] * np.array(_CHANCES) / RATES
    repeated = np.broadcast_to(work[:, None, None], wall.shape)
    return WallClock(repeated.ravel(), wall.ravel(), every.ravel())


def simulate(run: RunTimes, bill: RunBill, limits: RunLimits) -> Simulated:
    """Return how long a run takes and what it costs, with the chances that it keeps to its goal and its budget."""
    grid = wall_clock(run)
    finished = _bill(grid, bill)
    paid = np.minimum(finished, limits.cap_usd)
    ends = min((one for one in (limits.goal_h, limits.most_h) if one is not None), default=math.inf)
    done = (grid.wall_h <= ends) & (finished <= limits.cap_usd)
    hours = grid.mean(grid.wall_h)
    hours_curve, usd_curve = grid.quantiles(grid.wall_h, *CURVE), grid.quantiles(paid, *CURVE)
    budget = limits.budget_usd
    return Simulated(
        hours=hours,
        hours_low=hours_curve[_LOW_AT],
        hours_high=hours_curve[_HIGH_AT],
        mean_usd=grid.mean(finished),
        usd_low=usd_curve[_LOW_AT],
        usd_high=usd_curve[_HIGH_AT],
        goodput=grid.mean(grid.work_h) / hours if hours else 1.0,
        done=grid.mean(done.astype(np.float64)),
        within=None if budget is None else grid.mean((paid <= budget).astype(np.float64)),
        hours_curve=tuple(hours_curve),
        usd_curve=tuple(usd_curve),
    )


@functools.lru_cache(maxsize=1)
def _rate_steps() -> Floats:
    normal = NormalDist()
    return np.array([normal.inv_cdf((n + 0.5) / RATES) for n in range(RATES)])


@functools.lru_cache(maxsize=1)
def _normal_steps() -> Floats:
    normal = NormalDist()
    return np.array([normal.inv_cdf((n + 0.5) / _NORMAL_STEPS) for n in range(_NORMAL_STEPS)])


def _losses(expected: Floats) -> tuple[Floats, Floats]:
    """Return the numbers of losses for each expected number, one line for each, and the chance of each number."""
    most = float(expected.max())
    if not most:
        return np.zeros((len(expected), 1)), np.ones((len(expected), 1))
    last = math.ceil(most + 5 * math.sqrt(most) + 3)
    if last > MOST_COUNTED:
        counted = np.maximum(expected[:, None] + np.sqrt(expected)[:, None] * _normal_steps(), 0.0)
        return counted, np.full(counted.shape, 1 / _NORMAL_STEPS)
    number = np.arange(last + 1, dtype=np.float64)
    factorials = np.cumsum(np.log(np.maximum(number, 1.0)))
    chance = np.exp(number * np.log(expected)[:, None] - expected[:, None] - factorials)
    return np.broadcast_to(number, chance.shape), chance / chance.sum(axis=1, keepdims=True)


def _bill(grid: WallClock, bill: RunBill) -> Floats:
    """Return what each point's finished run costs."""
    billed = np.maximum(grid.wall_h - bill.unbilled_h, bill.minimum_h)
    if bill.step_h:
        billed = np.ceil(billed / bill.step_h) * bill.step_h
    paid: Floats = bill.once_usd + bill.work_usd_h * grid.work_h + bill.usd_h * billed
    return paid
