"""Turn a charge into a row of FOCUS 1.2, the FinOps Open Cost and Usage Specification (focus.finops.org).

The file has every column that the specification makes mandatory, those that apply to rented machines, and columns of
our own, which begin with `x_`. Costs are US dollars, times UTC. Nothing is discounted, so the four costs are the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from ledger.kernel import money
from ledger.kernel.booked_component import BookedComponent
from ledger.kernel.calendar_spans import after, begin
from ledger.kernel.charge import BookedCharge
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import RollupTier

VERSION = "1.2"
COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit",
    "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "ServiceSubcategory", "Tags", "x_Team", "x_Owner", "x_Project", "x_SessionId",
    "x_Tool",
)  # fmt: skip
HOUR = timedelta(hours=1)
#: Digits of a quantity: with them, quantity times price is the cost to less than a micro-dollar.
DIGITS = 12
_HOUR_KEY = re.compile(r"h[0-9]+")


class ChargeCategory(StrEnum):
    USAGE = "Usage"
    CREDIT = "Credit"
    ADJUSTMENT = "Adjustment"


class ServiceCategory(StrEnum):
    COMPUTE = "Compute"
    STORAGE = "Storage"
    OTHER = "Other"


SUBCATEGORY: Mapping[ServiceCategory, str] = {
    ServiceCategory.COMPUTE: "Virtual Machines",
    ServiceCategory.STORAGE: "Block Storage",
    ServiceCategory.OTHER: "Other (Other)",
}
SERVICE: Mapping[ServiceCategory, str] = {
    ServiceCategory.COMPUTE: "GPU instance",
    ServiceCategory.STORAGE: "Instance disk",
}


def focus_row(charge: BookedCharge, team: str) -> dict[str, str]:
    """Return the row of one charge; a column without a value is empty."""
    category, service = _category(charge), _service(charge)
    hours, price_usd_h = _quantity(charge) if category is ChargeCategory.USAGE else (None, None)
    unit = "" if hours is None else "Units" if charge.tool else "Hours"
    quantity, price = _number(hours), _number(price_usd_h)
    starts = charge.at - _duration(charge, hours)
    month = begin(RollupTier.MONTH, charge.at - timedelta(microseconds=1))
    account = f"{charge.cloud}/{charge.account}" if charge.account else charge.cloud
    cost = _number(charge.amount_usd)
    what = f"{charge.gpu_count}x {charge.gpu}" if charge.gpu else charge.component
    tags = {"team": team, "owner": charge.owner, "project": charge.label}
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingCurrency": "USD",
        "BillingPeriodStart": _time(month),
        "BillingPeriodEnd": _time(after(RollupTier.MONTH, month)),
        "ChargeCategory": category,
        "ChargeClass": "",
        "ChargeDescription": f"{what}: {charge.note or charge.kind.label}",
        "ChargeFrequency": "Usage-Based" if category is ChargeCategory.USAGE else "One-Time",
        "ChargePeriodStart": _time(starts),
        "ChargePeriodEnd": _time(charge.at),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), unit),
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), price),
        "PricingCategory": ("Dynamic" if charge.spot else "Standard") if quantity else "",
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), charge.cloud or charge.tool),
        **dict.fromkeys(("RegionId", "RegionName"), charge.region),
        "ResourceId": charge.ref,
        "ResourceName": charge.name if charge.ref else "",
        "ResourceType": "GPU instance" if charge.ref else "",
        "ServiceCategory": service,
        "ServiceName": SERVICE.get(service, charge.component or charge.tool or "GPU instance"),
        "ServiceSubcategory": SUBCATEGORY[service],
        "Tags": json.dumps({name: value for name, value in tags.items() if value}, ensure_ascii=False),
        "x_Team": team,
        "x_Owner": charge.owner,
        "x_Project": charge.label,
        "x_SessionId": charge.session_id,
        "x_Tool": charge.tool,
    }


def _category(charge: BookedCharge) -> ChargeCategory:
    if charge.kind is EntryKind.TRUE_UP:
        return ChargeCategory.ADJUSTMENT
    if charge.amount_usd < 0:
        return ChargeCategory.CREDIT
    return ChargeCategory.USAGE


def _service(charge: BookedCharge) -> ServiceCategory:
    if charge.kind is EntryKind.EXTERNAL:
        return ServiceCategory.OTHER
    is_compute = charge.component in (BookedComponent.GPU, BookedComponent.ORPHAN, "")
    return ServiceCategory.COMPUTE if is_compute else ServiceCategory.STORAGE


def _quantity(charge: BookedCharge) -> tuple[Decimal, Decimal]:
    """Return how much was used and at what price: hours of a machine or disk, one unit of another tool."""
    own_usd_h: dict[str, Decimal] = {
        BookedComponent.GPU: charge.price_usd_h - charge.storage_usd_h,
        BookedComponent.ORPHAN: charge.price_usd_h,
    }
    rate_usd_h = own_usd_h.get(charge.component, charge.storage_usd_h)
    is_hour = _HOUR_KEY.fullmatch(charge.key.rpartition("/")[2]) is not None
    if charge.tool or is_hour or rate_usd_h <= 0:
        return Decimal(1), charge.amount_usd
    return money.half_up(charge.amount_usd / rate_usd_h, DIGITS), rate_usd_h


def _duration(charge: BookedCharge, hours: Decimal | None) -> timedelta:
    """Return how long the charged time is; a charge that books no time lasts a second, which is the least."""
    if charge.tool or hours is None:
        return timedelta(seconds=1)
    return max(timedelta(seconds=round(float(hours) * HOUR.total_seconds())), timedelta(seconds=1))


def _number(number: Decimal | None) -> str:
    """Write a number without an exponent and without zeros that say nothing."""
    if number is None:
        return ""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
