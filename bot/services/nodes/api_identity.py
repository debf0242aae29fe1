"""Derive the key and the certificate of the API on one machine.

Both follow from the deployment's label key and the instance's id. So nothing private is stored, every replica gives a
machine the same ones, and GPU Shopper knows the certificate before the machine shows it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bot.rules.values.labels import LabelKey
from bot.wire.node_api import NodeIdentity

#: The port that the agent's API listens on.
API_PORT: Final = 8443
_SEED: Final = b"gpu-shopper key of the API of a machine, version 1: "
#: An instance lives for hours; fixed times make the same bytes each time, and no clock can put them off.
_FROM, _UNTIL = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2120, 1, 1, tzinfo=dt.UTC)


def api_identity(labels: LabelKey, instance_id: str) -> NodeIdentity:
    """Return the identity of an instance; the same each time. Ed25519, because its signatures hold no random part."""
    seed = hmac.digest(labels.key, _SEED + instance_id.encode(), "sha256")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, instance_id)])
    # The first bit of a serial number is 0: it is a positive number of at most 20 bytes.
    serial = int.from_bytes(hashlib.sha256(b"serial " + seed).digest()[:16], "big") >> 1 | 1
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name(instance_id))]), critical=False)
        .sign(key, None)
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return NodeIdentity(API_PORT, made.public_bytes(Encoding.PEM).decode(), private)


def dns_name(instance_id: str) -> str:
    """Return the name in the certificate, for callers that check one. No name server knows it."""
    return f"{instance_id.replace('_', '-')}.gpu-shopper.internal"
