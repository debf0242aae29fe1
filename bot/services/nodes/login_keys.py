"""Derive the SSH key pair by which GPU Shopper itself logs in to the machine of one session.

It follows from the deployment's label key and the session's id, so nothing is stored and every replica has it. Another
session's machine has another key, and the key is of no use once its machine is gone.
"""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.outbound.ssh_login import SshLogin
from bot.rules.values.labels import LabelKey
from ledger.models import Instance

_SEED = b"gpu-shopper login to the machine of a session, version 1: "


def login_key(labels: LabelKey, session_id: str) -> Ed25519PrivateKey:
    """Return the private key of a session."""
    return Ed25519PrivateKey.from_private_bytes(hmac.digest(labels.key, _SEED + session_id.encode(), "sha256"))


def public_line(labels: LabelKey, session_id: str) -> str:
    """Return the public half as one OpenSSH line, kind and base64."""
    return login_key(labels, session_id).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def ssh_login(labels: LabelKey, row: Instance) -> SshLogin:
    """Say how GPU Shopper logs in to an instance. Without a known host key the login sends nothing."""
    key = login_key(labels, row.session_id)
    return SshLogin(row.ssh_host or "", row.ssh_port or 22, row.ssh_user or "root", row.host_key, key)
