"""Send one POST or HEAD to an address that a user chose, without exposing our own network.

The name is resolved once, every record of the reply is checked, and the checked address is dialled; Host, SNI and the
certificate stay with the name. There are no redirects, no proxies from the environment, no connection that outlives its
call, and nothing of the response is used but its status. A name that resolves to another address a moment later
(rebinding) changes nothing, because it is never resolved again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore

from bot.outbound.names import Resolve
from ledger.kernel.network_guard import forbid_in_transaction

TIMEOUT_S: Final = 15.0
#: At most this much of a response is read, and discarded: a server that never stops sending must not keep us.
READ_MAX: Final = 64 * 1024
LONGEST_URL: Final = 1000
PORTS: Final = {"https": 443, "http": 80}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: What `is_global` calls global although a packet to it may end inside: translations of IPv4 addresses, relays, and an
#: address that a cloud keeps for its own host agent.
_INSIDE: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/23", "::/96", "fec0::/10", "3fff::/20", "5f00::/16",
        "100::/64", "168.63.129.16/32", "192.88.99.0/24", "192.0.0.0/24",
    )
)  # fmt: skip
_UNICAST: Final = ipaddress.ip_network("2000::/3")
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_PLAIN: Final = re.compile(r"[!-~]+")


class AddressRefused(ValueError):
    """We do not call this address; the message says why, in a sentence for people."""


class AddressUnreachable(Exception):
    """The address did not respond; the message says what happened, and nothing of what was received."""


@dataclass(frozen=True, slots=True)
class Egress:
    """Where calls may go besides public addresses: `networks` (any port, http too) and `ports` (https)."""

    networks: tuple[str, ...] = ()
    ports: tuple[int, ...] = (443,)

    def allows(self, scheme: str, ip: str, port: int) -> bool:
        """Whether an address may be dialled."""
        try:
            address: Address = ipaddress.ip_address(ip)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in ipaddress.ip_network(one) for one in self.networks):
            return True
        return scheme == "https" and port in self.ports and is_public(address)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL, parsed once."""

    scheme: str
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class EgressResponse:
    """What is used of a response: its status, and its Retry-After in seconds.

    Of a HEAD also the size of the file, and when it was last changed; None where the server does not say.
    """

    status: int
    retry_after_s: float | None = None
    length: int | None = None
    modified: datetime | None = None


def is_public(address: Address) -> bool:
    """Whether an address is a public host's: global, one machine's, and no other address in disguise."""
    if address.version == 6 and address not in _UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    return address.is_global and not special and not any(address in one for one in _INSIDE)


def read_url(url: str, egress: Egress) -> Target:
    """Parse a URL that may be called as far as its text shows. Raises `AddressRefused`."""
    if len(url) > LONGEST_URL or not _PLAIN.fullmatch(url) or "\\" in url:
        raise AddressRefused(
            "A webhook's URL is ASCII without spaces and backslashes, such as https://example.com/hooks."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused("This is not a URL; it looks like https://example.com/hooks.") from error
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise AddressRefused("A webhook's URL begins with https://.")
    if "@" in parts.netloc:
        raise AddressRefused("A webhook's URL holds no user name or password; the signature says who calls.")
    if parts.fragment or "#" in url:
        raise AddressRefused("A webhook's URL has no #fragment; it would never be sent.")
    host = _host(parts.hostname or "")
    port = PORTS[scheme] if port is None else port
    if not egress.networks and (scheme != "https" or port not in egress.ports):
        allowed = ", ".join(map(str, egress.ports))
        raise AddressRefused(f"A webhook's URL begins with https:// and its port is one of {allowed}.")
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    target = Target(scheme, host, port, path)
    if _literal(host) is not None and not egress.allows(scheme, host, port):
        raise _inside(host)
    return target


def _host(host: str) -> str:
    host = host.lower()
    if _literal(host) is not None:
        return host
    last = host.rpartition(".")[2]
    if not _HOST.fullmatch(host) or last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last):
        raise AddressRefused(
            "The host of a webhook's URL is a name such as example.com, or an address in its usual spelling."
        )
    return host


def _literal(host: str) -> Address | None:
    if "%" in host:
        return None
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _inside(host: str) -> AddressRefused:
    return AddressRefused(f"{host[:80]} is not a public address, so it is not called.")


async def vet(target: Target, egress: Egress, resolve: Resolve) -> Sequence[str]:
    """Resolve a target once and return its addresses, all of which may be dialled.

    Raises `AddressRefused` and `AddressUnreachable`, and what `resolve` raises when it is busy.
    """
    forbid_in_transaction("webhook")
    if _literal(target.host) is not None:
        found: Sequence[str] = [target.host]
    else:
        try:
            found = await resolve(target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise AddressUnreachable("the name does not resolve") from error
    if not found:
        raise AddressUnreachable("the name does not resolve")
    # One bad record of several is enough to refuse: an attacker adds it so that it is the one that is dialled.
    if not all(egress.allows(target.scheme, ip, target.port) for ip in found):
        raise _inside(target.host)
    return found


class _Pinned(httpcore.AsyncNetworkBackend):
    """Dial the addresses that were checked, whatever name is requested."""

    def __init__(self, addresses: Sequence[str], port: int) -> None:
        self._addresses = addresses
        self._port = port
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 # The library's own signature.
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers."""
        failed: Exception = httpcore.ConnectError("there is no address")
        for address in self._addresses:
            try:
                return await self._inner.connect_tcp(address, self._port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        """Refuse: a path is no public address."""
        raise httpcore.UnsupportedProtocol("no local sockets")

    async def sleep(self, seconds: float) -> None:
        """Sleep for the library's own pauses."""
        await self._inner.sleep(seconds)


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    egress: Egress,
    *,
    resolve: Resolve,
    timeout_s: float = TIMEOUT_S,
    tls: ssl.SSLContext | None = None,
) -> EgressResponse:
    """POST `body` and return the status. Raises only `AddressRefused`, `AddressUnreachable` and `ResolverBusy`."""
    return await _call("POST", url, body, headers, egress, timeout_s, resolve, tls)


async def head(
    url: str,
    egress: Egress,
    *,
    resolve: Resolve,
    timeout_s: float = TIMEOUT_S,
    tls: ssl.SSLContext | None = None,
) -> EgressResponse:
    """HEAD a file and return what its server says of it. Raises what `post` raises."""
    return await _call("HEAD", url, b"", {}, egress, timeout_s, resolve, tls)


async def _call(
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    egress: Egress,
    timeout_s: float,
    resolve: Resolve,
    tls: ssl.SSLContext | None,
) -> EgressResponse:
    target = read_url(url, egress)
    at = httpcore.URL(
        scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
    )
    waits = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            dialled = _Pinned(await vet(target, egress, resolve), target.port)
            async with (
                httpcore.AsyncConnectionPool(tls or _trusted(), max_connections=1, network_backend=dialled) as pool,
                pool.stream(method, at, headers=[*headers.items()], content=body, extensions={"timeout": waits}) as got,
            ):
                return await _read(method, got)
    except TimeoutError as error:
        raise AddressUnreachable(f"no answer within {timeout_s:g} s") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
        raise AddressUnreachable(_words(error)) from error


async def _read(method: str, got: httpcore.Response) -> EgressResponse:
    """Return what is used of a response, and discard its beginning."""
    read = 0
    async for chunk in got.aiter_stream():
        read += len(chunk)
        if read > READ_MAX:
            break
    found = EgressResponse(got.status, _retry_after(got.headers))
    if method == "HEAD":
        found = replace(found, length=_length(got.headers), modified=_modified(got.headers))
    return found


@cache
def _trusted() -> ssl.SSLContext:
    """Return the certificates that this machine trusts, read once.

    Reading them takes longer than the whole delivery, and blocks the event loop.
    """
    return ssl.create_default_context()


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Return the seconds of a Retry-After header; None for a date or nonsense."""
    said = _header(headers, b"retry-after")
    return float(said) if said.isdigit() and len(said) <= 6 else None


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    said = _header(headers, b"content-length")
    return int(said) if said.isdigit() and len(said) <= 18 else None


def _modified(headers: Iterable[tuple[bytes, bytes]]) -> datetime | None:
    try:
        at = parsedate_to_datetime(_header(headers, b"last-modified").decode("ascii"))
    except (ValueError, TypeError, OverflowError):
        return None
    return at.astimezone(UTC) if at.tzinfo is not None else None


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    return next((value for name, value in headers if name.lower() == wanted), b"").strip()


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError) or "SSL" in str(error):
        return "the TLS certificate or handshake was not accepted"
    kinds = ((httpcore.TimeoutException, "no answer in time"), (httpcore.ConnectError, "no connection"))
    return next((said for kind, said in kinds if isinstance(error, kind)), "the connection broke")
