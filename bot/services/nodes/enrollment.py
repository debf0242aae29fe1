"""Enroll the agent of an instance with a boot token that is passed in its environment and stored as a hash only.

Its tokens are good for its own check-ins and nothing else, and they end with its instance. The deadline that an agent
receives is signed, so that nobody between can prolong a session; the key pair follows from the deployment's label key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.rules.nodes.tokens import TokenKind
from bot.rules.values.labels import LabelKey
from bot.services.access.api_keys import pepper
from bot.services.runtime import agent_archive
from bot.services.runtime.context import Context
from bot.wire.variables import AGENT_SHA256, AGENT_URL, FIRST_MESSAGE, FIRST_SIGNATURE, KEY, TOKEN, URL
from ledger.core import Tx
from ledger.kernel.ids import bare_id
from ledger.models import Instance, Node

PATH = "/agent/v1/checkin"
SHAPE = re.compile(r"(gpu[nc])_([0-9a-hjkmnp-tv-z]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
_COMPACT: Any = {"separators": (",", ":"), "sort_keys": True}
_SEED = b"gpu-shopper deadlines of nodes, version 1"
_EXCHANGE = b"gpu-shopper check-in tokens of nodes, version 1"
_DOMAINS = {TokenKind.BOOT: b"node ", TokenKind.CHECKIN: b"check-in of node "}


def hashed(labels: LabelKey, secret: str, kind: TokenKind = TokenKind.BOOT) -> str:
    """Return the hash of a token's secret, as it is stored."""
    return hmac.new(pepper(labels), _DOMAINS[kind] + secret.encode(), hashlib.sha256).hexdigest()


def exchange_key(labels: LabelKey) -> bytes:
    """Derive the deployment's key for check-in tokens; every replica derives the same."""
    return hmac.digest(labels.key, _EXCHANGE, "sha256")


def signing_key(labels: LabelKey) -> Ed25519PrivateKey:
    """Derive the deployment's key for signing deadlines; every replica derives the same."""
    return Ed25519PrivateKey.from_private_bytes(hmac.digest(labels.key, _SEED, "sha256"))


def public_key(labels: LabelKey) -> str:
    """Return the public half of the signing key in base64, as agents receive it."""
    raw = signing_key(labels).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.b64encode(raw).decode()


def signed(
    labels: LabelKey,
    instance_id: str,
    seq: int,
    deadline: datetime | None,
    now: datetime,
    token_hash: str | None = None,
) -> tuple[str, str]:
    """Return `(message, signature in base64)` of the approved end, bound to one instance and check-in number.

    It says the service's time as well, so that an instance needs no right clock: it counts the time between the two.
    `token_hash` is the hash of the token for the instance's own API, where there is such a token.
    """
    end_s = int(deadline.timestamp()) if deadline else None
    what = {"deadline_s": end_s, "instance": instance_id, "n": seq, "now_s": int(now.timestamp())}
    said = json.dumps(what | ({"api_token_sha256": token_hash} if token_hash else {}), **_COMPACT)
    return said, base64.b64encode(signing_key(labels).sign(said.encode())).decode()


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token that is stored nowhere else: the environment variables with it, and the hash to store."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_hash: str = ""


def mint(ctx: Context, row: Instance, approved_until: datetime, now: datetime) -> Minted:
    """Create the boot token of an instance that is about to be created, and sign its approved end as number 0.

    With that end an instance that never reaches this service ends itself, too, where its cloud lets it. Empty at batch
    clouds, whose environment is part of a stored program, and for volumes.
    """
    able = ctx.providers[row.cloud].capabilities
    if able.batch or able.volume_gb is not None:
        return Minted()
    secret = secrets.token_urlsafe(32)
    env = {
        URL: ctx.node_url.rstrip("/") + PATH,
        TOKEN: f"{TokenKind.BOOT}_{bare_id(row.id)}_{secret}",
        KEY: public_key(ctx.labels),
    }
    if ctx.agent is not None:
        env |= {AGENT_URL: ctx.node_url.rstrip("/") + agent_archive.PATH, AGENT_SHA256: ctx.agent.sha256}
    message, env[FIRST_SIGNATURE] = signed(ctx.labels, row.id, 0, approved_until, now)
    # Quotes and braces in a variable do not survive every cloud's way to a container.
    env[FIRST_MESSAGE] = base64.b64encode(message.encode()).decode()
    return Minted(env, hashed(ctx.labels, secret))


def store(tx: Tx, row: Instance, minted: Minted, now: datetime) -> None:
    """Store the hash, in the transaction that commits the create to be sent."""
    if minted.token_hash:
        tx.add(Node(instance_id=row.id, session_id=row.session_id, token_hash=minted.token_hash, made_at=now))
