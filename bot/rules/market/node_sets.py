"""Make an offer of several machines that work as one set, and say where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bot.rules.values.phrases import plural
from ledger.kernel import money
from providers.contract import Offer

#: What an offer costs: each machine of a set costs it.
_PRICES = (
    "price_usd_h",
    "gpu_usd_h",
    "storage_usd_h",
    "storage_stopped_usd_h",
    "egress_usd_gb",
    "ingress_usd_gb",
    "min_bid_usd_h",
)
#: Digits behind the point that a price has at most, so that a third of three prices is one price again.
_DIGITS = 12


def as_set(offer: Offer, nodes: int) -> Offer:
    """Return so many machines of an offer as one offer, with the prices of all of them. Its GPUs are those of each."""
    if nodes == 1:
        return offer
    together: dict[str, Any] = {name: usd * nodes for name, usd in _prices(offer).items()}
    return replace(offer, nodes=nodes, **together)


def of_one(offer: Offer) -> Offer:
    """Return the offer of each machine of a set."""
    if offer.nodes == 1:
        return offer
    each: dict[str, Any] = {name: money.half_up(usd / offer.nodes, _DIGITS) for name, usd in _prices(offer).items()}
    return replace(offer, nodes=1, **each)


def _prices(offer: Offer) -> dict[str, Any]:
    found = {name: getattr(offer, name) for name in _PRICES}
    return {name: usd for name, usd in found.items() if usd is not None}


def without_links(cloud: str, nodes: int) -> str:
    """Say that a cloud's offers are all of machines that stay alone."""
    return f"{cloud} has no offer now whose machines reach each other, as {plural(nodes, 'machine')} of a set must."
