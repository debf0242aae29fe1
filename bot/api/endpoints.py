"""How to reach a machine: shown to the owner of its session, and to nobody else."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field


class Ssh(BaseModel):
    """How to connect; shown to the session's owner only. The key is the one that the machine showed first."""

    host: str
    port: int
    user: str
    command: str
    host_key: Annotated[str | None, Field(examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…"])] = None
    fingerprint: Annotated[str | None, Field(examples=["SHA256:…"])] = None
    known_hosts: str | None = None


class NodeApiOut(BaseModel):
    """The API of the machine's own agent; shown to the session's owner only. Trust this certificate and no other.

    `other_certificate_sha256` is another one that was named in its place since, and when. Nobody is sent there.
    """

    url: Annotated[str, Field(examples=["https://203.0.113.7:8443"])]
    certificate_sha256: str
    other_certificate_sha256: str | None = None
    other_at: datetime | None = None
    token_made_at: datetime | None = None


class NodeTokenOut(BaseModel):
    """What opens the API of a machine. `token` is shown this once; it dies with its machine and with the next one."""

    code: str
    sentence: str
    session_id: str
    token: str
    url: str
    certificate_sha256: str
