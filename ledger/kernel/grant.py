"""Carry the authority to spend to a provider."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum


class GrantKind(StrEnum):
    CREATE = "create"
    REPLACE = "replace"
    EXTEND = "extend"
    START = "start"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Grant:
    """Carry spend authority loaded from a committed row; `provider.create` takes one. Single use."""

    id: str
    request_id: str
    kind: GrantKind
    label: str
    price_cap_usd_h: Decimal
    total_cap_usd: Decimal
    hours: Decimal
    until: datetime
