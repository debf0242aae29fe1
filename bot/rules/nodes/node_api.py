"""Judge what an agent reports about its own API.

A node declares its port and its certificate and never where it is: the address is what the cloud says of the machine,
so that no node can send callers anywhere else. The certificate that it named first is the one that is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from bot.wire.node_api import MOST_PORT, NodeApiClaim

HTTPS_PORT: Final = 443
#: People are notified of another certificate once, and of yet another one not sooner than this.
TOLD_AGAIN: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class StoredNodeApi:
    """Hold what is stored about an agent's API.

    `other` is a certificate that replaced the first one; people were notified of it at `other_at`.
    """

    port: int | None = None
    certificate: str | None = None
    other: str | None = None
    other_at: datetime | None = None


class Declared(NamedTuple):
    """Hold what is stored now, why a claim was refused ("" if it was not), and whether people are notified."""

    api: StoredNodeApi
    problem: str = ""
    is_told: bool = False


def declared(before: StoredNodeApi, claim: NodeApiClaim, host: str | None, now: datetime) -> Declared:
    """Judge a machine's claim about its API; `host` is the address that its cloud shows, None while unknown."""
    port = _port(claim, host)
    if isinstance(port, str):
        return Declared(before, port)
    certificate = claim.certificate_sha256.lower()
    if before.certificate in (None, certificate):
        return Declared(replace(before, port=port, certificate=certificate))
    problem = "The certificate changed. People connect to the earlier one only."
    waits = before.other_at is not None and now - before.other_at < TOLD_AGAIN
    if certificate == before.other or waits:
        return Declared(before, problem)
    return Declared(replace(before, other=certificate, other_at=now), problem, is_told=True)


def _port(claim: NodeApiClaim, host: str | None) -> int | str:
    """Return the port that a claim names, or the reason why it names none that can be believed."""
    if claim.url is None:
        return claim.port if claim.port is not None else "Say the port of the API, or its url."
    try:
        said = urlsplit(claim.url)
        port = HTTPS_PORT if said.port is None else said.port
    except ValueError:
        return "The url cannot be read."
    if said.scheme != "https":
        return "The url must begin with https://."
    if said.username is not None or said.path not in ("", "/") or said.query or said.fragment:
        return "The url has a host and a port and nothing else."
    if host is None or _canonical(said.hostname or "") != _canonical(host):
        return "The host of the url is not this machine's address. Give the port only."
    if not 0 < port <= MOST_PORT or claim.port not in (None, port):
        return "The port of the API can't be read."
    return port


def _canonical(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower().rstrip(".")
