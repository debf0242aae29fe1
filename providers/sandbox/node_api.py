"""The API that a sandbox machine's agent serves itself: HTTPS with a certificate of its own making, opened by a token.

The agent never sees the token, only its hash, in the signed part of an answer to its check-ins.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

HOST = "127.0.0.1"
#: The certificate's own times mean nothing: every client has its fingerprint.
MADE = datetime(2026, 1, 1, tzinfo=UTC)
READ_S = 5.0


class NodeApi:
    """One agent's API on a port of 127.0.0.1. `status` is what a caller with the right token reads."""

    def __init__(self) -> None:
        self.port = 0
        self.certificate_sha256 = ""
        #: The hash of the only token that opens it; None: nothing does.
        self.token_sha256: str | None = None
        self.status: dict[str, Any] = {"status": "ok"}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Make a certificate and answer; on the same port as before when it did already."""
        port = self.port
        await self.close()
        context, der = _identity()
        self._server = await asyncio.start_server(self._answer, HOST, port, ssl=context)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.certificate_sha256 = hashlib.sha256(der).hexdigest()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(READ_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                opened = self._opens(head)
                body = json.dumps(self.status if opened else {"code": "unauthenticated"})
                line = "200 OK" if opened else "401 Unauthorized"
                said = (f"HTTP/1.1 {line}", "Content-Type: application/json", f"Content-Length: {len(body)}", "", body)
                writer.write("\r\n".join(said).encode())
                await writer.drain()
        writer.close()

    def _opens(self, head: str) -> bool:
        said = [
            line.partition(":")[2].strip() for line in head.split("\r\n") if line.lower().startswith("authorization:")
        ]
        if len(said) != 1 or self.token_sha256 is None:
            return False
        token = said[0].removeprefix("Bearer ")
        return hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), self.token_sha256)


def _identity() -> tuple[ssl.SSLContext, bytes]:
    """A TLS context with a new key and its certificate, and the certificate as it travels (DER)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sandbox node")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(MADE)
        .not_valid_after(MADE + timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .sign(key, SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with tempfile.NamedTemporaryFile() as file:  # Python takes them from a file only.
        file.write(secret + made.public_bytes(Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    return context, made.public_bytes(Encoding.DER)
