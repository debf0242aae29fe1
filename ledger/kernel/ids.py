"""Make and shorten the ids of rows: a prefix and 16 base32 characters, ordered by time."""

from __future__ import annotations

import secrets
from datetime import datetime

BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"

ID_LENGTH = 16

_LOW_BITS = 32

#: The milliseconds and the low bits of the newest id.
_newest = (-1, 0)


def base32(number: int, width: int) -> str:
    """Write `number` as lower-case base32 without the letters i, l, o, u, padded to `width`.

    ValueError if it is too long.
    """
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits.append(BASE32[digit])
    if number:
        raise ValueError("the number does not fit the width")
    return "".join(reversed(digits))


def new_id(prefix: str, at: datetime) -> str:
    """Make a time-ordered id: `prefix_` + 16 base32 characters = 48 bits of milliseconds and 32 low bits.

    The low bits are random for the first id of a millisecond, and grow by random steps after it: rows that one
    transaction writes at one instant, such as journal rows, keep their order.
    """
    global _newest  # noqa: PLW0603 # One sequence per process is the point.
    milliseconds = int(at.timestamp() * 1000)
    first = milliseconds != _newest[0]
    low = secrets.randbits(_LOW_BITS - 1) if first else _newest[1] + 1 + secrets.randbits(16)
    _newest = (milliseconds, low)
    # A millisecond that is used up runs over into the next one.
    return f"{prefix}_{base32((milliseconds << _LOW_BITS) + low, ID_LENGTH)}"


def first_id(prefix: str, at: datetime) -> str:
    """Return the least id of the millisecond `at`: every id that was made later is greater."""
    return f"{prefix}_{base32(int(at.timestamp() * 1000) << _LOW_BITS, ID_LENGTH)}"


def bare_id(identifier: str) -> str:
    """Return the 16 characters of an id without its prefix."""
    return identifier.rsplit("_", 1)[-1]


def short_id(identifier: str) -> str:
    """Return the last six characters, which are random: enough for a person to distinguish two rows."""
    return bare_id(identifier)[-6:]
