"""Signatures: the standard's own vectors, what it refuses, and OpenSSL as the judge of everything else."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.ed25519 import is_valid


class Vector(NamedTuple):
    """A public key, a message and the two halves of its signature, in hexadecimal."""

    key: str
    message: str
    r: str
    s: str


P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
#: RFC 8032, section 7.1: tests 1, 2, 3 and SHA(abc).
VECTORS = [
    Vector(
        key="d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        message="",
        r="e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155",
        s="5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    Vector(
        key="3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        message="72",
        r="92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da",
        s="085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    Vector(
        key="fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        message="af82",
        r="6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac",
        s="18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    Vector(
        key="ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        message=(
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        ),
        r="dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589",
        s="09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
]
#: The y of the eight points of small order, with both signs of x, and some in a form that is not the shortest.
SMALL_Y = (
    0,
    1,
    P - 1,
    2707385501144840649318225287225658788936804267575313519463743609750303021022,
    55188659117513257062467267217118295137698188065244968500265048394206261417927,
    P,
    P + 1,
)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
MESSAGE = b'{"deadline_s":1772449200,"instance":"ins_0123456789abcdef","n":7,"now_s":1772442000}'
SIGNATURE = KEY.sign(MESSAGE)


@pytest.mark.parametrize("vector", VECTORS)
def test_the_vectors_of_the_standard(vector: Vector) -> None:
    public, text = bytes.fromhex(vector.key), bytes.fromhex(vector.message)
    signed = bytes.fromhex(vector.r + vector.s)
    assert is_valid(public, signed, text)
    assert not is_valid(public, signed, text + b"\0")


@pytest.mark.parametrize("byte", range(64))
def test_no_byte_of_a_signature_may_change(byte: int) -> None:
    changed = bytearray(SIGNATURE)
    changed[byte] ^= 1
    assert not is_valid(PUBLIC, bytes(changed), MESSAGE)


@pytest.mark.parametrize("times", [1, 2, 8])
def test_s_is_below_the_order(times: int) -> None:
    """RFC 8032, 5.1.7: otherwise a second signature follows from the first one without the key."""
    s = int.from_bytes(SIGNATURE[32:], "little") + times * L
    assert not is_valid(PUBLIC, SIGNATURE[:32] + s.to_bytes(32, "little"), MESSAGE)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 63, 65, 96])
def test_a_signature_has_64_bytes_and_a_key_32(length: int) -> None:
    assert not is_valid(PUBLIC, (SIGNATURE * 2)[:length], MESSAGE)
    assert length == 32 or not is_valid((PUBLIC * 4)[:length], SIGNATURE, MESSAGE)


@pytest.mark.parametrize("y", SMALL_Y)
@pytest.mark.parametrize("sign", [0, 1])
def test_a_key_of_small_order_signs_nothing(y: int, sign: int) -> None:
    """With such a key, R = A and S = 0 fit about every eighth message; of 64 none may pass."""
    key = (y | sign << 255).to_bytes(32, "little")
    for number in range(64):
        assert not is_valid(key, key + bytes(32), b"%d" % number)
        assert not is_valid(key, (1).to_bytes(32, "little") + bytes(32), b"%d" % number)


@pytest.mark.parametrize("y", [2, 7, 8, P + 3, 2**255 - 1])
def test_a_key_that_is_no_point_signs_nothing(y: int) -> None:
    assert not is_valid(y.to_bytes(32, "little"), SIGNATURE, MESSAGE)


def test_an_r_in_a_longer_form_is_refused() -> None:
    """R is compared as bytes, so the neutral point written as p + 1 is another R."""
    assert not is_valid(PUBLIC, (P + 1).to_bytes(32, "little") + bytes(32), MESSAGE)


@given(seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=300), flip=st.integers(0, 600))
def test_openssl_says_the_same(seed: bytes, message: bytes, flip: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = key.public_key().public_bytes_raw(), bytearray(key.sign(message))
    if flip < 512:
        signature[flip // 8] ^= 1 << flip % 8
    try:
        key.public_key().verify(bytes(signature), message)
        said = True
    except InvalidSignature:
        said = False
    assert is_valid(public, bytes(signature), message) is said is (flip >= 512)


def added(p: tuple[int, int], q: tuple[int, int]) -> tuple[int, int]:
    """Add two points of the curve by its plain law (RFC 8032, 5.1): slow, and not the code under test."""
    product = D * p[0] * q[0] * p[1] * q[1] % P
    x = (p[0] * q[1] + q[0] * p[1]) * pow(1 + product, -1, P)
    y = (p[1] * q[1] + p[0] * q[0]) * pow(1 - product, -1, P)
    return x % P, y % P


def times(number: int, p: tuple[int, int]) -> tuple[int, int]:
    total = (0, 1)
    while number:
        total = added(total, p) if number & 1 else total
        p, number = added(p, p), number >> 1
    return total


def point(y: int, sign: int) -> tuple[int, int]:
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    return (x if x & 1 == sign else P - x), y


def encoded(p: tuple[int, int]) -> bytes:
    return (p[1] | (p[0] & 1) << 255).to_bytes(32, "little")


D = -121665 * pow(121666, -1, P) % P
BASE = point(4 * pow(5, -1, P) % P, 0)
#: A point of order 8: the part of any point that the order of the base point leaves, for the first that has all of it.
TORSION = next(
    small
    for y in range(2, 200)
    if pow((y * y - 1) * pow(D * y * y + 1, -1, P) % P, (P - 1) // 2, P) == 1
    and times(4, small := times(L, point(y, 0))) != (0, 1)
)


def said_by_openssl(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def hashed(r: bytes, key: bytes, message: bytes) -> int:
    return int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % L


@pytest.mark.parametrize("order", [1, 2, 4, 8])
@pytest.mark.parametrize("in_key", [True, False])
def test_a_key_or_an_r_with_a_part_of_small_order(order: int, in_key: bool) -> None:
    """A check that multiplies by eight takes all of these. This one and OpenSSL take those where that part is gone."""
    secret, nonce, small = 987654321, 123456789, times(8 // order, TORSION)
    key = encoded(added(times(secret, BASE), small if in_key else (0, 1)))
    r = encoded(added(times(nonce, BASE), (0, 1) if in_key else small))
    taken = 0
    for number in range(16):
        message = b"%d" % number
        h = hashed(r, key, message)
        signature = r + ((nonce + h * secret) % L).to_bytes(32, "little")
        is_right = h % order == 0 if in_key else order == 1
        assert is_valid(key, signature, message) is said_by_openssl(key, signature, message) is is_right
        taken += is_right
    assert taken == 16 if order == 1 else taken < 16


@pytest.mark.parametrize("order", [1, 2, 4, 8])
def test_an_r_of_small_order_is_judged_as_openssl_does(order: int) -> None:
    """Only the holder of the private key can make one that fits, and only with the neutral point."""
    secret, r = 987654321, encoded(times(8 // order, TORSION))
    key = encoded(times(secret, BASE))
    for number in range(8):
        message = b"%d" % number
        signature = r + (hashed(r, key, message) * secret % L).to_bytes(32, "little")
        assert is_valid(key, signature, message) is said_by_openssl(key, signature, message) is (order == 1)


@pytest.mark.parametrize("s", [0, 1, L - 1, L, L + 1, 2**252, 2**253 - 1, 2**255, 2**256 - 1])
def test_an_s_at_an_edge_fits_nothing(s: int) -> None:
    signature = SIGNATURE[:32] + s.to_bytes(32, "little")
    assert not is_valid(PUBLIC, signature, MESSAGE)
    assert not said_by_openssl(PUBLIC, signature, MESSAGE)


@pytest.mark.parametrize("s_bits", [0x20, 0x40, 0x80])
def test_the_upper_bits_of_s_count(s_bits: int) -> None:
    """Old libraries ignored them, so that each signature had seven others."""
    changed = bytearray(SIGNATURE)
    changed[63] |= s_bits
    assert not is_valid(PUBLIC, bytes(changed), MESSAGE)


def test_the_negative_of_a_key_or_an_r_is_another() -> None:
    turned_key, turned_r = bytearray(PUBLIC), bytearray(SIGNATURE)
    turned_key[31] ^= 0x80
    turned_r[31] ^= 0x80
    assert not is_valid(bytes(turned_key), SIGNATURE, MESSAGE)
    assert not is_valid(PUBLIC, bytes(turned_r), MESSAGE)


@pytest.mark.parametrize("y", range(19))
@pytest.mark.parametrize("sign", [0, 1])
def test_a_key_whose_y_is_not_below_the_prime_is_refused(y: int, sign: int) -> None:
    """All 19 values of y that have a second form in 255 bits."""
    long = (P + y | sign << 255).to_bytes(32, "little")
    for r in (SIGNATURE[:32], long, (1).to_bytes(32, "little")):
        assert not is_valid(long, r + bytes(32), MESSAGE)
        assert not is_valid(long, r + SIGNATURE[32:], MESSAGE)


def test_openssl_takes_a_key_of_zeros_and_this_does_not() -> None:
    Ed25519PublicKey.from_public_bytes(bytes(32)).verify(bytes(64), MESSAGE)
    assert not is_valid(bytes(32), bytes(64), MESSAGE)
