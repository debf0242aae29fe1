"""The guard in front of addresses that others choose: a corpus of hostile URLs, none of which is ever dialled."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bot.outbound.egress import AddressRefused, AddressUnreachable, Egress, EgressResponse, post, read_url, vet
from bot.outbound.names import NAMES

PUBLIC = Egress()
#: For what is really dialled: this machine alone, by an address that nothing else has.
HERE = Egress(networks=("127.0.0.77/32",))

_dialled: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        _dialled.append(str(arguments[1][0]))


sys.addaudithook(_note)


@pytest.fixture
def dialled() -> Iterator[list[str]]:
    """Every address that this test connects to, seen by the interpreter itself."""
    _dialled.clear()
    yield _dialled
    _dialled.clear()


def names(*addresses: str) -> Any:
    """A resolver that answers with these, whatever is asked."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


#: What the text of a URL tells already.
BY_TEXT = [
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0x7f.0x0.0x0.0x1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0/",
    "https://0.0.0.0/",
    "https://127.0.0.01/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://172.31.255.255/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://169.254.170.2/v2/credentials",
    "https://168.63.129.16/machine?comp=goalstate",
    "https://100.100.100.200/latest/",
    "https://100.64.0.1/",
    "https://192.0.0.192/",
    "https://198.18.0.1/",
    "https://192.0.2.1/",
    "https://192.88.99.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::7f00:1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/",
    "https://[2002:a9fe:a9fe::1]/",
    "https://[2001:0:7f00:1::1]/",
    "https://[2001:db8::1]/",
    "https://[3fff::1]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/latest/meta-data/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[ff0e::1]/",
    "https://[5f00::1]/",
    "https://[100::1]/",
    "https://user@example.com/",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1:443@example.com/",
    "https://user:word@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https:\\\\127.0.0.1/",
    "https://example.com:80/",
    "https://example.com:8080/",
    "https://example.com:22/",
    "https://example.com:6379/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://example.com:-1/",
    "http://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "unix:///var/run/docker.sock",
    "//example.com/",
    "example.com",
    "https://",
    "https:///path",
    "https://example.com/#@127.0.0.1",
    "https://example.com/\r\nHost: inside",
    "https://exam ple.com/",
    "https://ex\u00e4mple.com/",
    "https://\uff11\uff12\uff17.0.0.1/",
    "https://127\u30020\u30020\u30021/",
    "https://.example.com/",
    "https://-example.com/",
    "https://example..com/",
    f"https://{'a' * 64}.com/",
    f"https://example.com/{'a' * 1000}",
]
#: A harmless name, and what its owner lets it resolve to.
BY_ANSWER = [
    ("127.0.0.1",),
    ("10.1.2.3",),
    ("169.254.169.254",),
    ("168.63.129.16",),
    ("100.100.100.200",),
    ("::1",),
    ("::ffff:127.0.0.1",),
    ("::ffff:10.0.0.1",),
    ("64:ff9b::7f00:1",),
    ("2002:7f00:1::",),
    ("2001:0:7f00:1::1",),
    ("fd00::1",),
    ("fe80::1%eth0",),
    ("ff0e::1",),
    ("0.0.0.0",),  # noqa: S104 # Nothing is bound.
    ("not an address",),
    ("93.184.215.14", "127.0.0.1"),
    ("127.0.0.1", "93.184.215.14"),
    ("93.184.215.14", "2606:2800:21f::1", "fd00::1"),
]


def test_the_corpus_is_large_enough() -> None:
    assert len({*BY_TEXT, *BY_ANSWER}) >= 60


async def test_no_hostile_url_is_dialled(dialled: list[str]) -> None:
    async def unasked(host: str, _port: int) -> Sequence[str]:
        raise AssertionError(f"{host} was looked up although its text is refused")

    for url in BY_TEXT:
        with pytest.raises(AddressRefused):
            await post(url, b"{}", {}, PUBLIC, resolve=unasked)
    for answer in BY_ANSWER:
        with pytest.raises(AddressRefused, match="is not a public address"):
            await post("https://hooks.example.com/", b"{}", {}, PUBLIC, resolve=names(*answer))
    for url in ("https://localhost/", "https://localhost./", "https://LOCALHOST/"):
        with pytest.raises((AddressRefused, AddressUnreachable)):
            await post(url, b"{}", {}, PUBLIC, resolve=NAMES.for_user("test"))  # The system's own answer.
    assert dialled == []


@pytest.mark.parametrize("ip", ["93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "2a01:4f8::1"])
async def test_public_addresses_are_allowed(ip: str) -> None:
    target = read_url("https://hooks.example.com:443/a?b=c", PUBLIC)
    assert (target.host, target.port, target.path) == ("hooks.example.com", 443, "/a?b=c")
    assert await vet(target, PUBLIC, names(ip)) == (ip,)
    assert PUBLIC.allows("https", ip, 443)
    assert not PUBLIC.allows("http", ip, 443)
    assert not PUBLIC.allows("https", ip, 8443)
    assert Egress(ports=(443, 8443)).allows("https", ip, 8443)
    literal = f"[{ip}]" if ipaddress.ip_address(ip).version == 6 else ip
    assert read_url(f"https://{literal}/", PUBLIC).host == ip


async def test_a_name_without_an_address() -> None:
    async def nobody(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such host")

    for resolve in (nobody, names()):
        with pytest.raises(AddressUnreachable, match="does not resolve"):
            await post("https://hooks.example.com/", b"", {}, PUBLIC, resolve=resolve)


@asynccontextmanager
async def listening(handler: Any, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on 127.0.0.77, by its port; it ends when every conversation has, so no socket is left behind."""
    talks: list[asyncio.Task[None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.ensure_future(talk(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.77", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.gather(*talks, return_exceptions=True)


class Peer:
    """A server of raw answers on 127.0.0.77; it keeps what it was sent."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heard: list[bytes] = []
        self.port = 0
        self.server_names: list[str | None] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[16:]) for line in head.splitlines() if line.lower().startswith(b"content-length: "))
        self.heard.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        with suppress(ConnectionError):
            await writer.drain()

    @asynccontextmanager
    async def up(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
        async with listening(self._serve, tls) as self.port:
            yield self


def reply(status: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


async def test_it_dials_what_it_checked_and_follows_nothing(
    dialled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    asked: list[str] = []

    async def rebinding(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ("127.0.0.77",) if len(asked) == 1 else ("127.0.0.1",)

    moved = reply("302 Found", "Location: http://169.254.169.254/latest/meta-data/")
    async with Peer(moved).up() as peer:
        url = f"http://hooks.example.com:{peer.port}/in?a=1"
        assert await post(url, b"{}", {"webhook-id": "dlv_1"}, HERE, resolve=rebinding) == EgressResponse(302)
    assert (asked, dialled) == (["hooks.example.com"], ["127.0.0.77"])
    (heard,) = peer.heard
    assert heard.startswith(b"POST /in?a=1 HTTP/1.1\r\n")
    assert f"host: hooks.example.com:{peer.port}".encode() in heard.lower()
    assert b"webhook-id: dlv_1" in heard
    assert heard.endswith(b"{}")
    # A network of ours is this network alone: a public address stays https and on its port.
    for url in ("http://hooks.example.com/", "https://hooks.example.com:8443/"):
        with pytest.raises(AddressRefused):
            await post(url, b"", {}, HERE, resolve=names("93.184.215.14"))


async def test_an_answer_is_a_status_and_no_more(dialled: list[str]) -> None:
    async def ask(answer: bytes) -> EgressResponse:
        async with Peer(answer).up() as peer:
            return await post(f"http://127.0.0.77:{peer.port}/", b"{}", {}, HERE, resolve=NAMES.for_user("test"))

    assert await ask(reply("204 No Content")) == EgressResponse(204)
    assert await ask(reply("429 Too Many Requests", "Retry-After: 120")) == EgressResponse(429, 120.0)
    assert await ask(reply("503 Busy", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT")) == EgressResponse(503, None)
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000
    assert await ask(endless) == EgressResponse(200)
    for broken in (b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"):
        with pytest.raises(AddressUnreachable, match="the connection broke"):
            await ask(broken)
    with pytest.raises(AddressUnreachable, match=r"no answer within 0\.05 s"):
        await _silent()
    async with Peer(b"").up() as closed:
        pass
    with pytest.raises(AddressUnreachable, match="no connection"):
        await post(f"http://127.0.0.77:{closed.port}/", b"", {}, HERE, resolve=NAMES.for_user("test"))
    assert set(dialled) == {"127.0.0.77"}


async def _silent() -> EgressResponse:
    async def hold(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(hold) as port:
        return await post(f"http://127.0.0.77:{port}/", b"", {}, HERE, resolve=NAMES.for_user("test"), timeout_s=0.05)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's side of a certificate for `name`, which nobody else trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "peer.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cadata=made.public_bytes(serialization.Encoding.PEM).decode())
    return server, client


async def test_tls_speaks_to_the_name_at_the_checked_address(tmp_path: Path, dialled: list[str]) -> None:
    server, client = certificate(tmp_path, "hooks.example.com")
    peer = Peer(reply("200 OK"))
    server.sni_callback = lambda _socket, name, _context: peer.server_names.append(name)
    async with peer.up(server):
        there = names("127.0.0.77")
        url = f"https://hooks.example.com:{peer.port}/"
        assert await post(url, b"{}", {}, HERE, resolve=there, tls=client) == EgressResponse(200)
        assert peer.server_names == ["hooks.example.com"]
        for wrong in (f"https://other.example.com:{peer.port}/", f"https://127.0.0.77:{peer.port}/"):
            with pytest.raises(AddressUnreachable, match="TLS"):
                await post(wrong, b"{}", {}, HERE, resolve=there, tls=client)
        with pytest.raises(AddressUnreachable, match="TLS"):
            await post(url, b"{}", {}, HERE, resolve=there)  # Nobody vouches for it.
    assert set(dialled) == {"127.0.0.77"}
