"""How to connect to a machine; only the owner of its session sees it."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from bot.api.schemas.base import CommandOut
from bot.api.schemas.fields import Certificate, SessionId, Token, maybe


class Ssh(BaseModel):
    """How to connect by SSH; only the session's owner sees it. The key is the one that the machine showed first."""

    host: str = Field(description="Where the machine is reached.")
    port: int = Field(description="The port.")
    user: str = Field(description="The user to log in as.")
    command: str = Field(description="The command that connects.")
    host_key: str | None = maybe(
        "The SSH host key, from a key exchange of this service.", examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…"]
    )
    fingerprint: str | None = maybe("The fingerprint of the key: SHA256:…", examples=["SHA256:…"])
    known_hosts: str | None = maybe("A line for the file known_hosts.")


class NodeApiOut(BaseModel):
    """The API of the machine's own agent; only the session's owner sees it. Trust this certificate and no other.

    `other_certificate_sha256` is another one that the machine reported since, at `other_at`. Do not connect to it.
    """

    url: str = Field(description="The address.", examples=["https://203.0.113.7:8443"])
    certificate_sha256: Certificate
    other_certificate_sha256: str | None = maybe("Another certificate that was reported since; do not trust it.")
    other_at: datetime | None = maybe("When another certificate was reported.")
    token_made_at: datetime | None = maybe("When its token was made last; null when nobody has one.")


class NodeTokenOut(CommandOut):
    """The token for the API of a machine, shown this once; it ends with its machine and with the next token."""

    session_id: SessionId
    token: Token
    url: str = Field(description="The address.")
    certificate_sha256: Certificate
