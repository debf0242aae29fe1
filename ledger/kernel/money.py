"""Convert and round money: `Decimal` dollars in Python, integer micro-dollars in the database."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

MICRO = Decimal(1_000_000)


def to_micro(amount_usd: Decimal) -> int:
    """Dollars to integer micro-dollars, half up. Raises ValueError for NaN and infinities."""
    if not amount_usd.is_finite():
        raise ValueError("an amount of money must be finite")
    return int((amount_usd * MICRO).to_integral_value(rounding=ROUND_HALF_UP))


def from_micro(amount_micro: int) -> Decimal:
    """Integer micro-dollars to dollars, exactly."""
    return Decimal(amount_micro) / MICRO


def cents(amount_usd: Decimal) -> Decimal:
    """Rounded half up to whole cents, as people read amounts."""
    return amount_usd.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
