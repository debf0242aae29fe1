"""List every offer that fits a question, for people who browse: one row for offers that differ only by region.

The rows are in the order of the ranking, or sorted by another key; equal ones keep the order of the ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

import numpy as np

from bot.rules.grammar.market_words import SortKey
from bot.rules.market.columns import Indices, column, kinds
from bot.rules.market.filters import in_region
from bot.rules.market.ranking import OrderedMarket, ordered
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural
from ledger.kernel.job import JobRequest
from providers.capabilities import Capabilities
from providers.contract import Offer

#: What offers of one row have in common: everything that an offer says but its place, its stock there and its id.
_SAME = (
    "cloud", "gpu", "gpu_count", "memory_gb", "spot", "price_usd_h", "gpu_usd_h", "storage_usd_h",
    "storage_stopped_usd_h", "egress_usd_gb", "ingress_usd_gb", "reliability", "available_for_s", "machine_id",
    "host_id", "verified", "datacenter", "cuda_max", "compute_capability", "vcpus", "ram_gb", "disk_gb_max",
    "download_mbps", "min_bid_usd_h", "warning",
)  # fmt: skip
#: So many places are named where somebody asks for one that does not exist.
PLACES_NAMED = 20


#: Offers that differ only by region, the best ranked first.
OfferRow = tuple[Offer, ...]


def listed(
    offers: Sequence[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities: Mapping[str, Capabilities],
    sort: SortKey = SortKey.TOTAL,
) -> tuple[tuple[OfferRow, ...], OrderedMarket]:
    """Return the row of every offer that fits, sorted, and the market that says their totals and what was left out."""
    market = ordered(offers, job, policy, capabilities)
    rows = _rows(market)
    better = _BETTER.get(sort)
    return tuple(sorted(rows, key=lambda row: better(row[0])) if better else rows), market


def _rows(market: OrderedMarket) -> list[OfferRow]:
    """Join the offers of each kind, in the order in which their first ones stand."""
    rows: list[OfferRow] = []
    at: dict[int, int] = {}
    for one, kind in zip(market.offers, _kinds(market.offers).tolist(), strict=True):
        place = at.setdefault(kind, len(rows)) if kind else len(rows)
        if place == len(rows):
            rows.append((one,))
        else:
            rows[place] += (one,)
    return rows


def _kinds(offers: Sequence[Offer]) -> Indices:
    """Number each offer by its kind, from 1; 0 where it is the only one with its price, so the only one of its kind."""
    _, price, count = np.unique(column(offers, "price_usd_h").floats, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(count[price] > 1)
    found = np.zeros(len(offers), dtype=np.intp)
    found[shared] = 1 + kinds([offers[place] for place in shared.tolist()], _SAME)
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


def unknown_places(offers: Iterable[Offer], regions: Sequence[str]) -> str:
    """Say which of the regions asked for no offer is in, and which places there are; empty when each has one."""
    places = {(one.country, one.region): one for one in offers} if regions else {}
    nowhere = [name for name in regions if not any(in_region(one, name) for one in places.values())]
    if not nowhere or not places:
        return ""
    names = sorted({country or region for country, region in places})
    more = plural(len(names) - PLACES_NAMED, "other place") if len(names) > PLACES_NAMED else ""
    there = ", ".join(names[:PLACES_NAMED]) + (f" and {more}" if more else "")
    return f"No offer is in {' or '.join(f'“{name}”' for name in nowhere)} now; there are offers in {there}."
