"""Convert and round money: `Decimal` dollars in Python, integer micro-dollars (millionths of a dollar) in the database.

Every amount in the project is rounded here, so that each direction is chosen once and has a name:

- `rate`, `worst`: up, so that no limit is passed unseen;
- `cap`, `share`: down, so that no limit covers more than was agreed;
- `amount`, `cents`, `dollars`: half up, as people round;
- `amount_even`, `cents_even`: half to the even digit, so that many roundings cancel out.

`half_up` and `down` do the same for numbers beside money, such as hours and percentages.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Final

#: Micro-dollars in a dollar.
MICRO: Final = Decimal(1_000_000)
#: One micro-dollar: the ledger's own unit.
MICRO_USD: Final = Decimal("0.000001")
CENT: Final = Decimal("0.01")
#: Above this a price per hour is bad data, not an offer.
MOST_USD_H: Final = Decimal(1_000_000)


def to_micro(amount_usd: Decimal) -> int:
    """Convert dollars to integer micro-dollars, half up. Raises ValueError for NaN and infinities."""
    if not amount_usd.is_finite():
        raise ValueError("an amount of money must be finite")
    return int((amount_usd * MICRO).to_integral_value(rounding=ROUND_HALF_UP))


def from_micro(amount_micro: int) -> Decimal:
    """Convert integer micro-dollars to dollars, exactly."""
    return Decimal(amount_micro) / MICRO


def rate(price_usd_h: Decimal) -> Decimal:
    """Round dollars per hour up to whole micro-dollars, as the ledger keeps a price.

    Up, so that no limit is passed unseen. What is no believable number of dollars is left as it is; other rules refuse
    it.
    """
    if price_usd_h.same_quantum(MICRO_USD):
        return price_usd_h
    exponent = price_usd_h.as_tuple().exponent
    if not isinstance(exponent, int) or exponent >= -6 or price_usd_h > MOST_USD_H:
        return price_usd_h
    return price_usd_h.quantize(MICRO_USD, rounding=ROUND_UP)


def amount(amount_usd: Decimal) -> Decimal:
    """Round dollars half up to whole micro-dollars, as the ledger books them."""
    return amount_usd.quantize(MICRO_USD, rounding=ROUND_HALF_UP)


def amount_even(amount_usd: Decimal) -> Decimal:
    """Round dollars to whole micro-dollars, half to the even digit: for derived figures, such as a part of a price."""
    return amount_usd.quantize(MICRO_USD, rounding=ROUND_HALF_EVEN)


def cap(limit_usd: Decimal) -> Decimal:
    """Round a limit in dollars (also per hour) down to whole micro-dollars: it never covers more than was agreed."""
    return limit_usd.quantize(MICRO_USD, rounding=ROUND_DOWN)


def share(amount_usd: Decimal, parts: int) -> Decimal:
    """Return one of so many equal parts of an amount, rounded down: together they never exceed it."""
    return amount_usd if parts == 1 else cap(amount_usd / parts)


def worst(worst_usd: Decimal) -> Decimal:
    """Round a worst case in dollars up to whole micro-dollars: it is never less than what may come."""
    return worst_usd.quantize(MICRO_USD, rounding=ROUND_UP)


def cents(amount_usd: Decimal) -> Decimal:
    """Round dollars half up to whole cents, as people read amounts."""
    return amount_usd.quantize(CENT, rounding=ROUND_HALF_UP)


def cents_of(parts_usd: Sequence[Decimal]) -> list[Decimal]:
    """Round the parts of an amount to cents so that they add up to its own cents: the largest remainders round up."""
    found = [part.quantize(CENT, rounding=ROUND_DOWN) for part in parts_usd]
    missing = int((cents(sum(parts_usd, Decimal(0))) - sum(found, Decimal(0))) / CENT)
    left = sorted(range(len(found)), key=lambda at: (found[at] - parts_usd[at], at))
    for at in left[:missing]:
        found[at] += CENT
    return found


def cents_even(amount_usd: Decimal) -> Decimal:
    """Round dollars to whole cents, half to the even digit: for forecasts."""
    return amount_usd.quantize(CENT, rounding=ROUND_HALF_EVEN)


def cents_up(amount_usd: Decimal) -> Decimal:
    """Round dollars up to whole cents: the least amount, as people write one, that still covers this."""
    return amount_usd.quantize(CENT, rounding=ROUND_UP)


def dollars(amount_usd: Decimal) -> Decimal:
    """Round dollars half up to whole dollars, as people type an amount to confirm it."""
    return half_up(amount_usd, 0)


def half_up(number: Decimal, digits: int) -> Decimal:
    """Round any number half up to so many decimals: hours, percentages, what a person reads."""
    return number.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def down(number: Decimal, digits: int) -> Decimal:
    """Round any number down to so many decimals: hours that are left, a share that must still be reached."""
    return number.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_DOWN)
