"""Find the steady rate of a job in the last rates that it reported: their median, if they agree.

The first minutes of a job compile and fill caches, and one slow minute says little, so only late rates count, and the
few that differ much are left out. A job that keeps the same step between two check-ins makes nothing new;
its report repeats an old rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from statistics import median
from typing import Final

#: Check-ins come once a minute, so these are the last half hour of a job.
KEPT_RATES: Final = 30
#: Fewer rates than these are no steady rate.
LEAST_RATES: Final = 10
#: A rate further than this share from the median is an outlier.
NEAR: Final = Decimal("0.2")
#: So many of the rates must be near the median.
AGREEING: Final = Decimal(2) / 3
#: A job that is this many times faster or slower than predicted counts other units, such as the tokens of one GPU.
MOST_TIMES: Final = 8


def with_rate(
    rates: Sequence[Decimal], rate: Decimal | None, *, is_running: bool, is_new_job: bool, is_stuck: bool
) -> tuple[Decimal, ...]:
    """Return the rates that are kept after one more check-in: those of this job alone, the newest ones."""
    kept = () if is_new_job else tuple(rates)
    if rate is None or rate <= 0 or is_stuck or not is_running:
        return kept
    return (*kept, rate)[-KEPT_RATES:]


def steady_rate(rates: Sequence[Decimal]) -> Decimal | None:
    """Return the rate at which a job ran last; None where it reported too few rates, or they don't agree."""
    if len(rates) < LEAST_RATES:
        return None
    middle = median(rates)
    near = [one for one in rates if abs(one - middle) <= NEAR * middle]
    return median(near) if len(near) >= AGREEING * len(rates) else None


def is_comparable(measured: float, predicted: float) -> bool:
    """Whether a rate that nobody looked at can be one of the predicted run at all."""
    return predicted / MOST_TIMES <= measured <= predicted * MOST_TIMES
