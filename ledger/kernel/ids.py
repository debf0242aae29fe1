"""Make and shorten the ids of rows, a prefix and 16 base32 characters ordered by time, and make tokens.

All randomness of the ledger and the services comes from one `Ids`. A simulation replaces it with a seeded one, so that
the same seed gives the same rows.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from random import Random

BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"

#: Two digits at a time: an id is made for every row.
_PAIRS = [first + second for first in BASE32 for second in BASE32]

ID_LENGTH = 16

_LOW_BITS = 32


def base32(number: int, width: int) -> str:
    """Write `number` as lower-case base32 without the letters i, l, o, u, padded to `width`.

    ValueError if it is too long.
    """
    if number >> 5 * width:
        raise ValueError("the number does not fit the width")
    pairs = [_PAIRS[number >> shift & 1023] for shift in range(10 * ((width - 1) // 2), -1, -10)]
    return "".join(pairs)[-width:]


class Ids:
    """Make the ids and tokens of one process. Only a simulation gives a `source` that can be predicted."""

    def __init__(self, source: Random | None = None) -> None:
        self._source = source or secrets.SystemRandom()
        #: The milliseconds and the low bits of the newest id.
        self._newest = (-1, 0)

    def new_id(self, prefix: str, at: datetime) -> str:
        """Make an id, as the function of this name does."""
        milliseconds = int(at.timestamp() * 1000)
        first = milliseconds != self._newest[0]
        low = self._source.getrandbits(_LOW_BITS - 1) if first else self._newest[1] + 1 + self._source.getrandbits(16)
        self._newest = (milliseconds, low)
        # A millisecond that is used up runs over into the next one.
        return f"{prefix}_{base32((milliseconds << _LOW_BITS) + low, ID_LENGTH)}"

    def random_bytes(self, count: int) -> bytes:
        """Return so many random bytes."""
        return self._source.getrandbits(8 * count).to_bytes(count, "big")


_IDS: ContextVar[Ids] = ContextVar("ids", default=Ids())  # noqa: B039 # One sequence per process is the point.


@contextmanager
def ids_from(ids: Ids) -> Iterator[None]:
    """Take all ids and tokens of this task, and of the tasks that it starts, from `ids`."""
    token = _IDS.set(ids)
    try:
        yield
    finally:
        _IDS.reset(token)


def new_id(prefix: str, at: datetime) -> str:
    """Make a time-ordered id: `prefix_` + 16 base32 characters = 48 bits of milliseconds and 32 low bits.

    The low bits are random for the first id of a millisecond, and grow by random steps after it: rows that one
    transaction writes at one instant, such as journal rows, keep their order.
    """
    return _IDS.get().new_id(prefix, at)


def hex_token(count: int = 16) -> str:
    """Return a random token of so many bytes, in hexadecimal digits."""
    return _IDS.get().random_bytes(count).hex()


def url_token(count: int = 18) -> str:
    """Return a random token of so many bytes that can stand in a URL."""
    return base64.urlsafe_b64encode(_IDS.get().random_bytes(count)).rstrip(b"=").decode()


def first_id(prefix: str, at: datetime) -> str:
    """Return the least id of the millisecond `at`: every id that was made later is greater."""
    return f"{prefix}_{base32(int(at.timestamp() * 1000) << _LOW_BITS, ID_LENGTH)}"


def bare_id(identifier: str) -> str:
    """Return the 16 characters of an id without its prefix."""
    return identifier.rsplit("_", 1)[-1]


def short_id(identifier: str) -> str:
    """Return the last six characters, which are random: enough for a person to distinguish two rows."""
    return bare_id(identifier)[-6:]
