"""Encrypt the label key of a backup with a passphrase, and decrypt it again."""

from __future__ import annotations

import base64
import json
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

#: A guess takes 128 MiB and a third of a second.
COST, BLOCK, PARALLEL = 1 << 17, 8, 1
#: A higher cost in a file would only take memory away from whoever opens it.
COST_MAX = 1 << 20
SALT_BYTES, NONCE_BYTES = 16, 12
#: A shorter passphrase is guessed too soon.
SHORTEST = 12


class WrongPassphrase(RuntimeError):
    """Say that a passphrase does not open the label key."""


def encrypted(key_hex: str, passphrase: str, deployment: str) -> bytes:
    """Return the label key of a deployment, encrypted: JSON with everything but the passphrase."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    sealed = AESGCM(_derived(passphrase, salt, COST)).encrypt(nonce, key_hex.encode(), deployment.encode())
    facts = {"kdf": "scrypt", "cipher": "aes-256-gcm", "cost": COST}
    texts = {"salt": salt, "nonce": nonce, "text": sealed}
    return json.dumps(facts | {name: base64.b64encode(raw).decode() for name, raw in texts.items()}).encode()


def decrypted(content: bytes, passphrase: str, deployment: str) -> str:
    """Return the label key, hexadecimal. Raises `WrongPassphrase`."""
    try:
        facts = json.loads(content)
        salt, nonce, sealed = (base64.b64decode(facts[name], validate=True) for name in ("salt", "nonce", "text"))
        cipher = AESGCM(_derived(passphrase, salt, min(int(facts["cost"]), COST_MAX)))
        return cipher.decrypt(nonce, sealed, deployment.encode()).decode()
    except (InvalidTag, ValueError, KeyError, TypeError) as error:
        raise WrongPassphrase("the passphrase does not open the label key") from error


def _derived(passphrase: str, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=cost, r=BLOCK, p=PARALLEL).derive(passphrase.encode())
