"""The key and the certificate of a machine's API: derived, the same each time, and another machine's are others."""

from __future__ import annotations

import ssl

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bot.rules.values.labels import LabelKey
from bot.services.nodes.api_identity import api_identity, dns_name

MINE, OTHER = LabelKey("k7m2", b"k" * 32), LabelKey("k7m2", b"o" * 32)
ONE, TWO = "ins_0123456789abcdef", "ins_fedcba9876543210"


def test_it_is_the_same_each_time_and_another_for_another_machine_or_deployment() -> None:
    first = api_identity(MINE, ONE)
    assert first == api_identity(MINE, ONE)
    assert len({first.certificate, api_identity(MINE, TWO).certificate, api_identity(OTHER, ONE).certificate}) == 3
    assert len({first.key, api_identity(MINE, TWO).key, api_identity(OTHER, ONE).key}) == 3
    assert first.key not in repr(first)


def test_the_certificate_belongs_to_the_key_and_is_signed_by_it() -> None:
    found = api_identity(MINE, ONE)
    certificate = x509.load_pem_x509_certificate(found.certificate.encode())
    key = load_pem_private_key(found.key.encode(), None)
    assert isinstance(key, Ed25519PrivateKey)
    assert certificate.public_key() == key.public_key()
    certificate.verify_directly_issued_by(certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [dns_name(ONE)] == ["ins-0123456789abcdef.gpu-shopper.internal"]
    assert 0 < certificate.serial_number < 2**159
    ssl.create_default_context(cadata=found.certificate)
