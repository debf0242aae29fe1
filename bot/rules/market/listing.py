"""List every offer that fits a question, for people who browse: one row for offers that differ only by region.

The rows are in the order of the ranking, or sorted by another key; equal ones keep the order of the ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import overload

import numpy as np

from bot.rules.jobs.job import JobRequest
from bot.rules.market.columns import Indices, kinds
from bot.rules.market.filters import in_region
from bot.rules.market.ranking import OrderedMarket, ordered
from bot.rules.market.sort_key import SortKey
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural
from providers.capabilities import Capabilities
from providers.completeness import ProofOfWhole
from providers.contract import Offer

#: What offers of one row have in common: everything that an offer says but its place, its stock there and its id.
_SAME = (
    "cloud", "gpu", "gpu_count", "memory_gb", "spot", "price_usd_h", "gpu_usd_h", "storage_usd_h",
    "storage_stopped_usd_h", "egress_usd_gb", "ingress_usd_gb", "reliability", "available_for_s", "machine_id",
    "host_id", "verified", "datacenter", "cuda_max", "compute_capability", "vcpus", "ram_gb", "disk_gb_max",
    "download_mbps", "upload_mbps", "nvlink_gb_s", "pcie_gb_s", "power_limit_w", "min_bid_usd_h", "warning",
)  # fmt: skip
#: So many places are named where somebody asks for one that does not exist.
PLACES_NAMED = 20


#: Offers that differ only by region, the best ranked first.
OfferRow = tuple[Offer, ...]


class OfferRows(Sequence[OfferRow]):
    """Hold the rows of a market as one sequence of offers and where each row starts; a row is made when it is read."""

    def __init__(self, offers: Sequence[Offer], starts: Sequence[int]) -> None:
        self._offers = tuple(offers)
        self._bounds = (*starts, len(self._offers))

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, at: int) -> OfferRow: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[OfferRow, ...]: ...

    def __getitem__(self, at: int | slice) -> OfferRow | tuple[OfferRow, ...]:
        """Return one row, or several."""
        if isinstance(at, slice):
            return tuple(self[place] for place in range(*at.indices(len(self))))
        place = range(len(self))[at]
        return self._offers[self._bounds[place] : self._bounds[place + 1]]


def listed(
    offers: Sequence[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities: Mapping[str, Capabilities],
    sort: SortKey = SortKey.TOTAL,
) -> tuple[OfferRows, OrderedMarket]:
    """Return the row of every offer that fits, sorted, and the market that says their totals and what was left out."""
    market = ordered(offers, job, policy, capabilities)
    first, row = np.unique(_firsts(market), return_inverse=True)
    place = np.arange(len(first))
    better = _BETTER.get(sort)
    if better is not None:
        keys = [better(market.offers[at]) for at in first.tolist()]
        place[sorted(place.tolist(), key=keys.__getitem__)] = np.arange(len(first))
    row = place[row]
    order = np.argsort(row, kind="stable")
    starts = np.searchsorted(row[order], np.arange(len(first)))
    return OfferRows([market.offers[at] for at in order.tolist()], starts.tolist()), market


def _firsts(market: OrderedMarket) -> Indices:
    """Return for each offer the place of the first one of its row. Only those with an equal price are compared."""
    offers = market.offers
    _, price, count = np.unique(market.prices, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(count[price] > 1)
    found = np.arange(len(offers))
    _, first, kind = np.unique(
        kinds([offers[at] for at in shared.tolist()], _SAME), return_index=True, return_inverse=True
    )
    found[shared] = shared[first][kind]
    return found


def _least(read: Callable[[Offer], Decimal | int | None], *, most: bool = False) -> Callable[[Offer], Decimal]:
    """Make a key that sorts the least number first, or the most; what is unknown or no number comes last."""

    def key(offer: Offer) -> Decimal:
        said = read(offer)
        number = Decimal("Infinity") if said is None else Decimal(said)
        if not number.is_finite():
            return Decimal("Infinity")
        return -number if most else number

    return key


#: Sort key → the key of an offer, the least first; the order of the ranking needs none.
_BETTER: Mapping[SortKey, Callable[[Offer], Decimal]] = {
    SortKey.PRICE: _least(lambda one: one.price_usd_h),
    SortKey.GPU_PRICE: _least(lambda one: None if one.price_usd_h is None else one.price_usd_h / one.gpu_count),
    SortKey.RELIABILITY: _least(lambda one: one.reliability, most=True),
    SortKey.MEMORY: _least(lambda one: one.memory_gb, most=True),
    SortKey.ALL_MEMORY: _least(lambda one: one.memory_gb * one.gpu_count, most=True),
    SortKey.CUDA: _least(lambda one: one.cuda_max, most=True),
    SortKey.AVAILABLE: _least(lambda one: one.available_for_s, most=True),
    SortKey.NETWORK: _least(lambda one: one.download_mbps, most=True),
}


def unknown_places(offers: Iterable[Offer], regions: Sequence[str], proof: ProofOfWhole | None) -> str:
    """Say which of the regions asked for no offer is in, and which places there are; empty when each has one.

    Without a `proof` that these are all offers, there may be one.
    """
    places = {(one.country, one.region): one for one in offers} if regions and proof else {}
    nowhere = [name for name in regions if not any(in_region(one, name) for one in places.values())]
    if not nowhere or not places:
        return ""
    names = sorted({country or region for country, region in places})
    more = plural(len(names) - PLACES_NAMED, "other place") if len(names) > PLACES_NAMED else ""
    there = ", ".join(names[:PLACES_NAMED]) + (f" and {more}" if more else "")
    return f"No offer is in {' or '.join(f'“{name}”' for name in nowhere)} now; there are offers in {there}."
