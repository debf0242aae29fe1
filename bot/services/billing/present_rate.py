"""Return the present cost of an hour of an instance, without what its cloud does not bill now."""

from __future__ import annotations

from decimal import Decimal

from bot.services.billing.metering import gpu_rate
from ledger.queries.metering import Billable


def rate_now(row: Billable) -> Decimal:
    """Return dollars per hour that its cloud bills for an instance now."""
    gpu_usd_h = gpu_rate(row.price_usd_h, row.storage_usd_h)
    pays_gpu = row.billing_from is not None and row.billing_until is None
    disk_usd_h = row.storage_usd_h if row.storage_until is None else Decimal(0)
    return disk_usd_h + (gpu_usd_h if pays_gpu else Decimal(0))
