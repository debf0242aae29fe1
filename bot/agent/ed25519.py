"""Verify Ed25519 signatures with the standard library alone.

After RFC 8032, sections 5.1.3 (decoding), 5.1.4 (points) and 5.1.7 (verification), in the form that multiplies by no
cofactor, as OpenSSL does. Public keys of small order are refused, because a signature under one proves nothing. A check
takes a few milliseconds. Only public values are worked with, so the time may depend on them. Nothing here may ever hold
a private key.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

#: The field, the order of the base point, and the curve's constant: RFC 8032, section 5.1.
_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)

#: A point as (X, Y, Z, T) with x = X/Z, y = Y/Z, x*y = T/Z.
_Point = tuple[int, int, int, int]
_NEUTRAL: _Point = (0, 1, 1, 0)


def is_valid(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` (64 bytes) of `message` was made with the private half of `public_key` (32 bytes)."""
    if len(public_key) != 32 or len(signature) != 64:
        return False
    s = int.from_bytes(signature[32:], "little")
    key = _decoded(public_key)
    if s >= _L or key is None or _has_small_order(key):
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    h = int.from_bytes(digest, "little") % _L
    minus_key = (_P - key[0], key[1], key[2], _P - key[3])
    return _encoded(_sum_of_products(s, _base(), h, minus_key)) == signature[:32]


def _sum_of_products(a: int, p: _Point, b: int, q: _Point) -> _Point:
    """Return a*p + b*q, with one row of doublings for both."""
    table = {(1, 0): p, (0, 1): q, (1, 1): _added(p, q)}
    found = _NEUTRAL
    for bit in range(max(a.bit_length(), b.bit_length()) - 1, -1, -1):
        found = _doubled(found)
        which = (a >> bit & 1, b >> bit & 1)
        if which in table:
            found = _added(found, table[which])
    return found


def _added(p: _Point, q: _Point) -> _Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c = 2 * p[3] * q[3] * _D % _P
    d = 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _doubled(p: _Point) -> _Point:
    a, b = p[0] * p[0] % _P, p[1] * p[1] % _P
    h = a + b
    e = h - (p[0] + p[1]) * (p[0] + p[1])
    g = a - b
    f = 2 * p[2] * p[2] + g
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _has_small_order(p: _Point) -> bool:
    """Whether eight times the point is neutral: then some signatures fit every message."""
    eight = _doubled(_doubled(_doubled(p)))
    return eight[0] == 0 and (eight[1] - eight[2]) % _P == 0


def _encoded(p: _Point) -> bytes:
    inverse = pow(p[2], -1, _P)
    x, y = p[0] * inverse % _P, p[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decoded(encoded: bytes) -> _Point | None:
    """Return the point of 32 bytes; None if they are the one valid form of no point."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (1 << 255) - 1
    if y >= _P:
        return None
    u, v = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = u * pow(v, 3, _P) * pow(u * pow(v, 7, _P), (_P - 5) // 8, _P) % _P
    if v * x * x % _P != u:
        x = x * _ROOT % _P
    if v * x * x % _P != u or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


@lru_cache(maxsize=1)
def _base() -> _Point:
    point = _decoded((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    if point is None:
        raise ArithmeticError("the base point of RFC 8032 lies on the curve")
    return point
