"""What interruptions cost a run that writes checkpoints: Young and Daly's interval and the share of work that is lost.

A host that is lost with the chance p within a day is lost at the rate -ln(1 - p) / 24 per hour. Each loss costs half of
the interval between two checkpoints and a restart; each interval costs one checkpoint. The sum is least for an interval
of sqrt(2 x time to write / rate) (J. W. Young 1974, J. T. Daly 2006).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

#: Reliabilities and the policy's chance of losing a spot instance are read as chances within this time.
WINDOW_H = 24
#: A host that is lost for certain is counted as lost with this chance, so that the rate stays a number.
MOST_CHANCE = 0.99
#: How fast a checkpoint is written, in GB per second: a network disk, since slower is the safe side.
WRITE_GB_S = Decimal("0.5")


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Hours to write one checkpoint, to come back after a loss, and between two checkpoints where that was said."""

    write_h: Decimal
    restart_h: Decimal
    every_h: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """`share` of the work is spent on checkpoints, repeated work and restarts; `rate_h` losses are expected per hour.

    `interval_h` is the time between checkpoints, None where none are written or none are needed.
    """

    share: Decimal
    rate_h: Decimal
    interval_h: Decimal | None


@functools.lru_cache(maxsize=8192)
def loss(chance: Decimal, how: Checkpointing) -> Loss:
    """What a chance of losing the host within a day costs a run. A higher chance never costs less."""
    rate = -math.log1p(-min(float(chance), MOST_CHANCE)) / WINDOW_H
    write, restart = float(how.write_h), float(how.restart_h)
    interval = float(how.every_h) if how.every_h is not None else math.sqrt(2 * write / rate) if rate else 0.0
    writing = write / interval if interval else 0.0
    share = writing + rate * (interval / 2 + restart)
    return Loss(_exact(share), _exact(rate), _exact(interval) if interval else None)


def loss_shares(
    chances: NDArray[np.float64], hows: Sequence[Checkpointing], of: NDArray[np.intp]
) -> NDArray[np.float64]:
    """The `share` of `loss` for many chances at once, without its rounding; `of` says which of `hows` each one has."""
    rate = -np.log1p(-np.minimum(chances, MOST_CHANCE)) / WINDOW_H
    write = np.array([float(how.write_h) for how in hows])[of]
    restart = np.array([float(how.restart_h) for how in hows])[of]
    every = np.array([math.nan if how.every_h is None else float(how.every_h) for how in hows])[of]
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(rate > 0, np.sqrt(2 * write / rate), 0.0)
        interval = np.where(np.isnan(every), best, every)
        writing = np.where(interval > 0, write / interval, 0.0)
    share: NDArray[np.float64] = writing + rate * (interval / 2 + restart)
    return share


def _exact(number: float) -> Decimal:
    return Decimal(f"{number:.9f}")
