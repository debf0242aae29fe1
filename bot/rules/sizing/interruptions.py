"""Estimate what interruptions cost a run that writes checkpoints, with Young and Daly's interval.

A host that is lost with the chance p within a window of w hours is lost at the rate -ln(1 - p) / w per hour: the rate
of a Poisson process that leaves it alone for the window with the chance 1 - p. The interval between two checkpoints
is sqrt(2 x time to write / rate) (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM
17, 1974). A loss repeats the work since the newest checkpoint and costs a restart; work that is repeated can be lost
again. The expected time of one interval with its checkpoint is then (1 / rate + restart) x (e ^ (rate x (interval +
write)) - 1) (J. T. Daly, "A higher order estimate of the optimum checkpoint interval", FGCS 22, 2006). No cloud says
within which time its reliability is meant, nor how fast its disks take a checkpoint, so both are the policy's:
`loss_window_h` and `checkpoint_write_gb_s`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

#: A bound of the arithmetic and no fact about hosts: a chance of 1 has no rate, so more than this is counted as this.
MOST_CHANCE = 0.99
#: A bound of the arithmetic: so many losses are expected during one interval at most. Such a run does not advance.
MOST_LOSSES = 5.0
#: Where fewer losses are expected in an interval, they come at any time in it alike; the exact sum would lose digits.
_EVEN = 1e-3


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Hold, in hours, the time to write a checkpoint, to restart, between two, and the window of the loss chance."""

    write_h: Decimal
    restart_h: Decimal
    every_h: Decimal | None = None
    window_h: Decimal = Decimal(24)


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold what losses cost: `share` of the work goes to checkpoints, repeats and restarts, at `rate_h` losses an hour.

    `interval_h` is the time between checkpoints, None where none are written or none are needed, and `written_per_h`
    how many of them are written in an hour of work.
    """

    share: Decimal
    rate_h: Decimal
    interval_h: Decimal | None
    written_per_h: Decimal


@functools.lru_cache(maxsize=8192)
def losses_per_h(chance: Decimal, window_h: Decimal) -> Decimal:
    """Return how many losses an hour are expected of a host that is lost with this chance within the window."""
    return _exact(-math.log1p(-min(float(chance), MOST_CHANCE)) / float(window_h))


@functools.lru_cache(maxsize=8192)
def lost_within(chance: Decimal, window_h: Decimal, hours: Decimal) -> Decimal:
    """Return the chance of losing such a host within some hours: 1 - (1 - chance) ^ (hours / window)."""
    rate = -math.log1p(-min(float(chance), MOST_CHANCE)) / float(window_h)
    return _exact(-math.expm1(-rate * float(hours)))


@functools.lru_cache(maxsize=8192)
def loss(chance: Decimal, how: Checkpointing) -> Loss:
    """Estimate what a chance of losing the host within the window costs a run.

    A higher chance never costs less.
    """
    rate = -math.log1p(-min(float(chance), MOST_CHANCE)) / float(how.window_h)
    write, restart = float(how.write_h), float(how.restart_h)
    interval = float(how.every_h) if how.every_h is not None else math.sqrt(2 * write / rate) if rate else 0.0
    written = 1 / interval if interval else 0.0
    share = _growth(rate * (interval + write)) * (1 + write * written) * (1 + rate * restart) - 1
    return Loss(_exact(share), _exact(rate), _exact(interval) if interval else None, _exact(written))


def _growth(losses: float) -> float:
    """Return (e ^ x - 1) / x: how much longer an interval takes in which so many losses are expected."""
    bound = min(losses, MOST_LOSSES)
    return math.expm1(bound) / bound if bound else 1.0


@dataclass(frozen=True, slots=True)
class LostTime:
    """Hold how often work is lost per hour of work, and what one loss costs: its mean and its deviation in hours."""

    losses_per_h: float
    mean_h: float
    deviation_h: float


def lost_time(rate_h: float, interval_h: float, write_h: float, restart_h: float) -> LostTime:
    """Describe the losses behind `loss`: below its bound, losses_per_h x mean_h + write_h / interval_h is its share."""
    whole = interval_h + write_h
    at_once = min(rate_h * whole, MOST_LOSSES)
    if not at_once or not interval_h:
        return LostTime(rate_h, restart_h, 0.0)
    failed = math.expm1(at_once)
    if at_once < _EVEN:
        return LostTime(failed / interval_h, whole * (0.5 - at_once / 12) + restart_h, whole / math.sqrt(12))
    # Where the bound holds, the rate that it stands for.
    rate = at_once / whole
    # The time until a loss that comes within the interval: an exponential one, cut off at its end.
    repeated = 1 / rate - whole / failed
    variance = 1 / rate**2 - whole**2 * math.exp(at_once) / failed**2
    return LostTime(failed / interval_h, repeated + restart_h, math.sqrt(variance))


@dataclass(frozen=True, slots=True)
class ManyLosses:
    """Hold the same for many hosts at once, without rounding: shares of the work, and checkpoints an hour."""

    share: NDArray[np.float64]
    written_per_h: NDArray[np.float64]


def rates_per_h(chances: NDArray[np.float64], window_h: Decimal) -> NDArray[np.float64]:
    """Compute `losses_per_h` for many chances at once, without its rounding."""
    found: NDArray[np.float64] = -np.log1p(-np.minimum(chances, MOST_CHANCE)) / float(window_h)
    return found


def many_losses(
    rates: NDArray[np.float64],
    write_h: NDArray[np.float64],
    restart_h: NDArray[np.float64],
    every_h: NDArray[np.float64],
) -> ManyLosses:
    """Compute `loss` for many rates and times at once; `every_h` is NaN where the best interval is taken."""
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(rates > 0, np.sqrt(2 * write_h / rates), 0.0)
        interval = np.where(np.isnan(every_h), best, every_h)
        written = np.where(interval > 0, 1 / interval, 0.0)
        at_once = np.minimum(rates * (interval + write_h), MOST_LOSSES)
        growth = np.where(at_once > 0, np.expm1(at_once) / at_once, 1.0)
    return ManyLosses(growth * (1 + write_h * written) * (1 + rates * restart_h) - 1, written)


def _exact(number: float) -> Decimal:
    return Decimal(f"{number:.9f}")
