"""Describe one amount that was spent, with what it was spent on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from ledger.kernel.entry_kind import EntryKind


@dataclass(frozen=True, slots=True)
class BookedCharge:
    """One ledger entry with the rows that it speaks of. `amount_usd` is below 0 where money is given back.

    `at` is the end of the time that it books. Texts are empty, and prices 0, where no row says them.
    """

    id: str
    key: str
    kind: EntryKind
    amount_usd: Decimal
    at: datetime
    component: str
    note: str
    session_id: str
    owner: str
    cloud: str
    gpu: str
    label: str
    tool: str
    gpu_count: int
    account: str
    ref: str
    name: str
    region: str
    spot: bool
    price_usd_h: Decimal
    storage_usd_h: Decimal
