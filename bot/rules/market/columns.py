"""Read a market as columns of numbers, and find the offers that must be checked one by one.

Comparisons are exact: turning a `Decimal` into a float keeps the order, so floats that differ decide, and only where
they are equal the decimals themselves are compared.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.filters import filtered, unfit
from bot.rules.policy.policy import Policy
from bot.rules.viability.compatibility import Needs
from ledger.kernel import money
from providers.contract import Offer, Stock

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
Number = Decimal | int | None

#: Below this no price can be beyond belief, whatever the rounding.
_BELIEVED_USD = float(money.MOST_USD_H) * 0.999


@dataclass(frozen=True, slots=True)
class Column:
    """Hold the attribute `name` of all offers as floats, NaN where it is missing or no number."""

    offers: Sequence[Offer]
    name: str
    floats: Floats

    def at_least(self, least: Decimal | Floats) -> Flags:
        """Flag where the number is known and not below `least`, which is one number or one per offer.

        Exact for a `Decimal`; where `least` are floats, an equal one is not counted.
        """
        if not isinstance(least, Decimal):
            return self.floats > least
        return self._compared(self.floats > float(least), least, lambda one: one >= least)

    def at_most(self, most: Decimal) -> Flags:
        """Flag where the number is known and not above `most`. Exact."""
        return self._compared(self.floats < float(most), most, lambda one: one <= most)

    def _compared(self, sure: Flags, limit: Decimal, inside: Callable[[Decimal | int], bool]) -> Flags:
        for place in np.flatnonzero(self.floats == float(limit)).tolist():
            one: Number = getattr(self.offers[place], self.name)
            sure[place] = one is not None and inside(one)
        return sure


def column(offers: Sequence[Offer], name: str) -> Column:
    """Read one attribute of all offers."""
    read, count = attrgetter(name), len(offers)
    try:
        floats = np.fromiter(map(read, offers), np.float64, count)
    except (TypeError, ValueError):
        floats = _some([*map(read, offers)], count)
    return Column(offers, name, floats)


def flags(said: Iterable[bool | None]) -> Flags:
    """Make one flag per offer; an unknown one is false."""
    return np.fromiter(said, np.bool_)


def _some(numbers: Sequence[Number], count: int) -> Floats:
    """Read the floats of numbers that may be missing."""
    try:
        return np.fromiter((math.nan if one is None else one for one in numbers), np.float64, count)
    except ValueError:  # A signalling NaN refuses to become a float.
        return np.fromiter(map(_float, numbers), np.float64, count)


def _float(one: Number) -> float:
    try:
        return math.nan if one is None else float(one)
    except ValueError:
        return math.nan


@dataclass(frozen=True, slots=True)
class Prices:
    """Hold the columns that every total is made of."""

    price: Column
    storage: Column
    egress: Column
    ingress: Column
    reliability: Column

    @classmethod
    def of(cls, offers: Sequence[Offer]) -> Prices:
        """Read the columns of these offers."""
        names = ("price_usd_h", "storage_usd_h", "egress_usd_gb", "ingress_usd_gb", "reliability")
        return cls(*(column(offers, name) for name in names))


def kinds(offers: Sequence[Offer], names: Iterable[str]) -> Indices:
    """Number each offer by its kind: the same number where the attributes `names` are the same."""
    known: defaultdict[Any, int] = defaultdict(itertools.count().__next__)
    rows = map(attrgetter(*names), offers)
    try:
        return np.fromiter(map(known.__getitem__, rows), np.intp, len(offers))
    except TypeError:  # A signalling NaN has no hash; it is as unknown as any other.
        said = (tuple(map(_hashable, row)) for row in map(attrgetter(*names), offers))
        return np.fromiter(map(known.__getitem__, said), np.intp, len(offers))


def examples(kinds: Indices, places: Indices) -> tuple[list[int], Indices]:
    """Return the first of `places` of each kind, and for each of `places` which of those is of its kind."""
    first = np.full(kinds.max(initial=-1) + 1, -1, dtype=np.intp)
    first[kinds[places][::-1]] = places[::-1]
    present = np.flatnonzero(first >= 0)
    number = np.zeros(len(first), dtype=np.intp)
    number[present] = np.arange(len(present))
    return first[present].tolist(), number[kinds[places]]


def _hashable(one: Any) -> Any:
    return None if isinstance(one, Decimal) and one.is_nan() else one


def kind_names(job: JobRequest, policy: Policy, needs: Mapping[str, Needs]) -> tuple[str, ...]:
    """Name the attributes that decide about a `plain` offer, besides the time that its work takes."""
    by_image = any(one.image.vendor is not None for one in needs.values())
    by_driver = any(one.image.cuda is not None for one in needs.values())
    work = workload_of(job)
    by_place = job.regions or policy.blocked_countries
    by_center = work is not None and work.volume is not None and not by_place
    return (
        *("cloud", "gpu", "gpu_count", "spot"),
        *(("compute_capability",) if by_image or job.work or job.install else ()),
        *(("cuda_max",) if by_driver or job.install else ()),
        *(("country", "region") if by_place else ()),
        *(("region",) if by_center else ()),
    )


def plain(offers: Sequence[Offer], prices: Prices, job: JobRequest, policy: Policy) -> Flags:
    """Flag the offers that only their kind could leave out: their prices are usable and inside every limit.

    `market.filters.reason` says the same of all plain offers of a kind, so that it is asked once for them; it is
    asked about each of the others.
    """
    if job.offer_id is not None:
        return np.zeros(len(offers), dtype=np.bool_)
    fine = (prices.price.floats > 0) & (prices.price.floats < _BELIEVED_USD)
    for extra in (prices.storage, prices.egress, prices.ingress):
        fine &= np.abs(extra.floats) < _BELIEVED_USD
    memory = column(offers, "memory_gb")
    fine &= np.isfinite(memory.floats)
    if job.gpu.memory_gb_min is not None:
        fine &= memory.at_least(job.gpu.memory_gb_min)
    if job.gpu.memory_gb_max is not None:
        fine &= memory.at_most(job.gpu.memory_gb_max)
    if job.max_price_usd_h is not None:
        fine &= prices.price.at_most(job.max_price_usd_h)
    if job.min_reliability is not None:
        fine &= np.isfinite(prices.reliability.floats) & prices.reliability.at_least(job.min_reliability)
    fine &= _unsaid_or_least(column(offers, "disk_gb_max"), Decimal(job.disk_gb))
    if not job.work:
        fine &= _unsaid_or_least(column(offers, "available_for_s"), job.hours * 3600)
    if filtered(job):
        judged = zip(np.isfinite(memory.floats).tolist(), offers, strict=True)
        fine &= flags([known and unfit(one, job) is None for known, one in judged])
    sold_out = Stock.NONE
    fine &= flags([one.stock is not sold_out for one in offers])
    if policy.blocked_hosts:
        ids = {host.partition(":")[2] for host in policy.blocked_hosts}
        fine &= flags([one.host_id not in ids and one.machine_id not in ids for one in offers])
    return fine


def _unsaid_or_least(numbers: Column, least: Decimal) -> Flags:
    return np.isnan(numbers.floats) | numbers.at_least(least)
