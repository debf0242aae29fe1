"""Convert offers and estimates to JSON and back, so that a quote stores what people saw."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter

from bot.rules.checkpoints.verification import said_of
from bot.rules.market.estimate import Component, Estimate
from bot.rules.values.phrases import sum_of
from bot.services.market.offer_fields import OutlookFields
from ledger.models import Option, Quote
from providers.cloud_names import cloud_title
from providers.completeness import COMPLETE, UNKNOWN, Completeness, of_all
from providers.contract import Offer

_OFFER = TypeAdapter(Offer)
_ESTIMATE = TypeAdapter(Estimate)
_COMPONENT = TypeAdapter(Component)
#: What the most that an offer may cost assumes for a part.
_MOST = {
    "start-up": "start-up (a slow boot)",
    "transfer": "transfer (twice the data)",
    "retries": "retries (failed launches, failover)",
    "interruptions": "repeated work (a lost host)",
    "hold": "checkpoint hold",
    "notices": "days of notices",
}


def offer_to_json(offer: Offer) -> dict[str, Any]:
    """Return an offer as plain JSON types; decimals are strings."""
    data: dict[str, Any] = _OFFER.dump_python(offer, mode="json")
    return data


def offer_from_json(data: Mapping[str, Any]) -> Offer:
    """Return the offer of such JSON: the inverse of `offer_to_json`."""
    return _OFFER.validate_python(dict(data))


def estimate_to_json(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as plain JSON types; decimals are strings. The curve of its outlook is only drawn."""
    data: dict[str, Any] = _ESTIMATE.dump_python(estimate, mode="json")
    if data["outlook"] is not None:
        del data["outlook"]["curve"]
    return data


def estimate_from_json(data: Mapping[str, Any]) -> Estimate:
    """Return the estimate of such JSON: the inverse of `estimate_to_json`, without a curve."""
    return _ESTIMATE.validate_python(dict(data))


def completeness_of_quote(quote: Quote) -> Completeness:
    """Return how much of the market a quote was made of. Quotes of releases that stored it for no cloud are unknown."""
    if not quote.clouds:
        return COMPLETE  # It quotes one running machine.
    parts = {cloud_title(str(one.get("cloud", ""))): one.get("completeness") for one in quote.clouds}
    known = {name: Completeness.from_json(part) for name, part in parts.items()}
    return of_all(known) if any(parts.values()) else UNKNOWN


def hold_hours(option: Option) -> Decimal:
    """Return how long an option's GPU may be held at its end: time that is granted with it."""
    return _of_hold(option, "hold_hours")


def hold_line(option: Option) -> str:
    """Return what of an option's worst case is for its checkpoint hold, as every client shows it; empty for nothing."""
    return said_of(*(_of_hold(option, name) for name in ("hold_usd", "hold_hours", "disk_hours")))


def parts_line(option: Option) -> str:
    """Return the parts of an option's expected total; empty where it has one part alone."""
    return sum_of((part.name, part.expected_usd) for part in components_of(option))


def most_line(option: Option) -> str:
    """Return the parts of the most that an option may cost, and what is assumed in each; empty where it has none."""
    parts = {_MOST.get(part.name, part.name): part for part in components_of(option) if part.worst_usd > 0}
    if not parts:
        return ""
    hours = option.estimate.get("worst_hours")
    compute = next((part for part in parts.values() if part.name == "compute"), None)
    rise = _rise(option, compute) if compute and compute.expected_usd and not hours else None
    named = "compute for the longest time" if hours else f"compute at a price up to {rise:.0%} higher" if rise else ""
    said = [(named if part.name == "compute" and named else name, part.worst_usd) for name, part in parts.items()]
    return sum_of(said) or said[0][0]


def _rise(option: Option, compute: Component) -> Decimal:
    """Return by which share the most of the compute is above the quoted price, for a rental by the hour.

    Its expected compute may leave out a boot, so the hours at the quoted price are what it is compared with.
    """
    offer, hours = option.offer or {}, Decimal(str((option.estimate or {}).get("hours", 0)))
    disk_usd_h = min(max(Decimal(str(offer.get("storage_usd_h", 0))), Decimal(0)), option.price_usd_h)
    quoted_usd = (option.price_usd_h - disk_usd_h) * hours or compute.expected_usd
    return compute.worst_usd / quoted_usd - 1


def outlook_of(option: Option) -> OutlookFields | None:
    """Return what the simulation of a described run showed; None without one, and in rows of releases before it."""
    found = (option.estimate or {}).get("outlook")
    return None if found is None else OutlookFields.model_validate(found)


def components_of(option: Option) -> list[Component]:
    """Return the parts of an option's estimate; none in rows of releases that stored none."""
    return [_COMPONENT.validate_python(part) for part in (option.estimate or {}).get("components", ())]


def _of_hold(option: Option, name: str) -> Decimal:
    """Return one figure of the hold; 0 in rows of releases that reserved nothing."""
    return Decimal(str((option.estimate or {}).get(name, 0)))
