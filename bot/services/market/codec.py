"""Convert offers and estimates to JSON and back, so that a quote stores what people saw."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter

from bot.rules.checkpoints.verification import said_of
from bot.rules.market.estimate import Estimate
from bot.rules.values.phrases import sum_of
from ledger.models import Option
from providers.contract import Offer

_OFFER = TypeAdapter(Offer)
_ESTIMATE = TypeAdapter(Estimate)


def offer_to_json(offer: Offer) -> dict[str, Any]:
    """Return an offer as plain JSON types; decimals are strings."""
    data: dict[str, Any] = _OFFER.dump_python(offer, mode="json")
    return data


def offer_from_json(data: Mapping[str, Any]) -> Offer:
    """Return the offer of such JSON: the inverse of `offer_to_json`."""
    return _OFFER.validate_python(dict(data))


def estimate_to_json(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as plain JSON types; decimals are strings."""
    data: dict[str, Any] = _ESTIMATE.dump_python(estimate, mode="json")
    return data


def estimate_from_json(data: Mapping[str, Any]) -> Estimate:
    """Return the estimate of such JSON: the inverse of `estimate_to_json`."""
    return _ESTIMATE.validate_python(dict(data))


def hold_hours(option: Option) -> Decimal:
    """Return how long an option's GPU may be held at its end: time that is granted with it."""
    return _of_hold(option, "hold_hours")


def hold_line(option: Option) -> str:
    """Return what of an option's worst case is for its checkpoint hold, as every client shows it; empty for nothing."""
    return said_of(*(_of_hold(option, name) for name in ("hold_usd", "hold_hours", "disk_hours")))


def parts_line(option: Option) -> str:
    """Return the parts of an option's expected total; empty where it has one part alone."""
    parts = (option.estimate or {}).get("components", ())
    return sum_of((str(part["name"]), Decimal(str(part["expected_usd"]))) for part in parts)


def _of_hold(option: Option, name: str) -> Decimal:
    """Return one figure of the hold; 0 in rows of releases that reserved nothing."""
    return Decimal(str((option.estimate or {}).get(name, 0)))
