"""Rows of FOCUS 1.2, checked against a table of what the specification demands of each column."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.billing.focus import COLUMNS, focus_row
from ledger.kernel.charge import BookedCharge
from ledger.kernel.entry_kind import EntryKind

#: The columns that FOCUS 1.2 makes mandatory.
MANDATORY = frozenset(
    [
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingCurrency",
        "BillingPeriodEnd",
        "BillingPeriodStart",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "ContractedCost",
        "EffectiveCost",
        "InvoiceIssuerName",
        "ListCost",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
        "ServiceCategory",
        "ServiceName",
    ]
)
#: Every other column of the specification that the file may have.
OTHERS = frozenset(
    [
        "AvailabilityZone",
        "BillingAccountType",
        "CapacityReservationId",
        "CapacityReservationStatus",
        "ChargeFrequency",
        "CommitmentDiscountCategory",
        "CommitmentDiscountId",
        "CommitmentDiscountName",
        "CommitmentDiscountQuantity",
        "CommitmentDiscountStatus",
        "CommitmentDiscountType",
        "CommitmentDiscountUnit",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedUnitPrice",
        "InvoiceId",
        "ListUnitPrice",
        "PricingCategory",
        "PricingCurrency",
        "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost",
        "PricingCurrencyListUnitPrice",
        "RegionId",
        "RegionName",
        "ResourceId",
        "ResourceName",
        "ResourceType",
        "ServiceSubcategory",
        "SkuId",
        "SkuMeter",
        "SkuPriceDetails",
        "SkuPriceId",
        "SubAccountId",
        "SubAccountName",
        "SubAccountType",
        "Tags",
    ]
)
#: Columns that may be empty in some row.
NULLABLE = frozenset({"ChargeClass", "PricingQuantity", "PricingUnit"}) | OTHERS - {"Tags", "ServiceSubcategory"}
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"", "Standard", "Dynamic", "Committed", "Other"},
    "BillingCurrency": {"USD"},
    "ServiceCategory": {
        "AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools",
        "Multicloud", "Identity", "Integration", "Internet of Things", "Management and Governance", "Media",
        "Migration", "Mobile", "Networking", "Security", "Storage", "Web", "Other",
    },
    "ServiceSubcategory": {
        "Virtual Machines", "Other (Compute)", "Block Storage", "Other (Storage)", "Other (Other)",
    },
}  # fmt: skip
NUMBERS = {name for name in COLUMNS if name.endswith(("Cost", "Quantity", "UnitPrice"))}
TIMES = {name for name in COLUMNS if name.endswith(("PeriodStart", "PeriodEnd"))}
#: An hour that ended with the month.
HOUR = BookedCharge(
    id="led_1",
    key="ins_1/gpu/h3",
    kind=EntryKind.ACCRUE,
    amount_usd=Decimal("0.359"),
    at=datetime(2026, 3, 1, tzinfo=UTC),
    component="gpu",
    note="",
    session_id="ses_1",
    owner="slack:T1/UADA",
    cloud="vast",
    gpu="RTX4090",
    label="reranker",
    tool="",
    gpu_count=2,
    account="5d41402abc4b",
    ref="26500007",
    name="try1-06h0c74z3w",
    region="Poland, PL",
    spot=False,
    price_usd_h=Decimal("0.369"),
    storage_usd_h=Decimal("0.01"),
)
REST = replace(HOUR, key="ins_1/gpu/final", amount_usd=Decimal("0.123457"))
DISK = replace(HOUR, key="ins_1/storage/h3", component="storage", amount_usd=Decimal("0.01"))
TRUE_UP = replace(HOUR, key="bill/1", kind=EntryKind.TRUE_UP, amount_usd=Decimal("-0.02"), note="the cloud's bill")
ORPHAN = replace(HOUR, kind=EntryKind.LOSS, component="stray", session_id="", owner="", gpu="", label="")
TOOL = replace(
    ORPHAN, kind=EntryKind.EXTERNAL, component="store", tool="storage", cloud="s3", ref="", account="", name="",
    region="", price_usd_h=Decimal(0), storage_usd_h=Decimal(0),
)  # fmt: skip
REFUND = replace(TOOL, amount_usd=Decimal("-1.50"))
EVERY = {
    "hour": HOUR, "rest": REST, "disk": DISK, "correction": TRUE_UP, "orphan": ORPHAN, "tool": TOOL, "refund": REFUND,
    "spot": replace(HOUR, spot=True), "free": replace(REST, price_usd_h=Decimal(0), storage_usd_h=Decimal(0)),
}  # fmt: skip


def conforms(row: dict[str, str]) -> None:
    """Fail unless a row keeps the specification's rules."""
    assert set(row) == set(COLUMNS)
    assert [name for name in row if not row[name] and name not in NULLABLE and not name.startswith("x_")] == []
    for name, values in ALLOWED.items():
        assert row[name] in values, name
    for name in NUMBERS:
        assert re.fullmatch(r"(-?\d+(\.\d+)?)?", row[name]), name
    for name in TIMES:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]), name
    assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    is_usage = row["ChargeCategory"] == "Usage"
    for name in ("PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit", "PricingCategory"):
        assert bool(row[name]) is is_usage, name
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        if is_usage:
            product = Decimal(row["PricingQuantity"]) * Decimal(row[price])
            assert abs(product - Decimal(row[cost])) < Decimal("0.000001")
    assert isinstance(json.loads(row["Tags"]), dict)
    assert bool(row["ResourceType"]) is bool(row["ResourceId"])


def test_the_file_has_the_columns_of_the_specification() -> None:
    assert set(COLUMNS) >= MANDATORY
    assert {name for name in COLUMNS if not name.startswith("x_")} <= MANDATORY | OTHERS
    assert len(set(COLUMNS)) == len(COLUMNS)


@pytest.mark.parametrize("charge", EVERY.values(), ids=EVERY)
def test_every_kind_of_charge_keeps_the_rules(charge: BookedCharge) -> None:
    conforms(focus_row(charge, "ml"))


def test_an_hour_says_who_used_what_and_for_which_project() -> None:
    row = focus_row(HOUR, "ml")
    assert (row["PricingQuantity"], row["PricingUnit"], row["ListUnitPrice"]) == ("1", "Hours", "0.359")
    # The last hour of a month is in that month.
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
    assert (row["ChargePeriodStart"], row["ServiceCategory"]) == ("2026-02-28T23:00:00Z", "Compute")
    assert json.loads(row["Tags"]) == {"team": "ml", "owner": "slack:T1/UADA", "project": "reranker"}
    assert (row["x_Team"], row["x_Owner"], row["x_Project"]) == ("ml", "slack:T1/UADA", "reranker")
    assert (row["ResourceId"], row["ChargeDescription"]) == ("26500007", "2x RTX4090: Used by a session")
    assert focus_row(replace(HOUR, spot=True), "")["PricingCategory"] == "Dynamic"


def test_what_is_no_use_has_no_quantity() -> None:
    assert focus_row(TRUE_UP, "")["ChargeCategory"] == "Adjustment"
    assert focus_row(REFUND, "")["ChargeCategory"] == "Credit"
    rest = focus_row(REST, "")
    used = Decimal(rest["PricingQuantity"]) * 3600
    began = datetime.fromisoformat(rest["ChargePeriodStart"])
    assert abs((REST.at - began) - timedelta(seconds=float(used))) < timedelta(seconds=1)
