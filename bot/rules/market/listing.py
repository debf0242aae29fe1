"""List every offer that fits a question, for people who browse: one row for offers that differ only by region.

The rows are in the order of the ranking, or sorted by another key; equal ones keep the order of the ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.grammar.market_words import SortKey
from bot.rules.market.columns import kinds
from bot.rules.market.filters import Excluded, in_region
from bot.rules.market.ranking import ordered
from bot.rules.market.scoring import Scored
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


@dataclass(frozen=True, slots=True)
class OfferGroup:
    """Hold offers that differ only by region, the best ranked first, and the expected total of each in dollars."""

    offers: tuple[Offer, ...]
    expected_usd: Decimal


def listed(
    offers: Sequence[Offer],
    job: JobRequest,
    policy: Policy,
    capabilities: Mapping[str, Capabilities],
    sort: SortKey = SortKey.TOTAL,
) -> tuple[tuple[OfferGroup, ...], tuple[Excluded, ...]]:
    """Return the row of every offer that fits, sorted, and everything that was left out with its reason."""
    found, excluded = ordered(offers, job, policy, capabilities)
    rows = _rows(found)
    better = _BETTER.get(sort)
    return tuple(sorted(rows, key=lambda row: better(row.offers[0])) if better else rows), excluded


def _rows(found: Sequence[Scored]) -> list[OfferGroup]:
    """Join the offers of each kind, in the order in which their first ones stand."""
    alike: dict[int, list[Scored]] = {}
    for one, kind in zip(found, kinds([one.offer for one in found], _SAME).tolist(), strict=True):
        alike.setdefault(kind, []).append(one)
    return [OfferGroup(tuple(one.offer for one in same), same[0].expected_usd) for same in alike.values()]


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
