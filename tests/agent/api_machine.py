"""A machine's API as its service sees it: the certificate that the exchange gives, and a caller who knows it."""

from __future__ import annotations

import datetime as dt
import hashlib
import socket
import ssl
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.agent.service import Call, Service, checkin_answer
from tests.agent.signing import signed

TOKEN = "gpua_" + "t" * 43


def pair() -> tuple[str, str]:
    """A certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "machine")])
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(day).not_valid_after(day.replace(year=2046))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return builder.sign(key, hashes.SHA256()).public_bytes(pem).decode(), private.decode()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Machine:
    """What the service answers to one machine, and a caller of its API who knows its certificate."""

    def __init__(self, here: Service) -> None:
        self.port, (self.certificate, self.key) = free_port(), pair()
        self.token = TOKEN
        self.always = False
        here.answer = self.answer

    def answer(self, call: Call) -> tuple[int, Any]:
        seq = call.body.get("seq", 0)
        found = signed(n=seq, api_token_sha256=hashlib.sha256(self.token.encode()).hexdigest())
        more: dict[str, Any] = {"deadline": {"message": found.message, "signature": found.signature}, "next_in_s": 1}
        if "nonce" in call.body or self.always:
            more["api"] = {"port": self.port, "certificate": self.certificate, "key": self.key}
        return 200, checkin_answer(seq) | more

    def get(self, path: str, token: str = TOKEN) -> httpx.Response:
        context = ssl.create_default_context(cadata=self.certificate)
        context.check_hostname = False
        url = f"https://127.0.0.1:{self.port}/node/v1/{path}"
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(url, headers=headers, verify=context, timeout=20, trust_env=False)


def claims(calls: list[Call]) -> list[dict[str, Any]]:
    """What the check-ins said of the API."""
    return [one.body["api"] for one in calls if one.method == "POST" and "api" in one.body]
