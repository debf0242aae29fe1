"""Probe an SSH endpoint: a TCP connect, the server's version line and its host key (RFC 4253)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from typing import Any

from ledger.kernel.network_guard import forbid_in_transaction

#: RFC 4253: a server may send other lines first; a line has at most 255 bytes.
LINES_MAX = 20
LINE_MAX = 255
BANNER_SHOWN = 80
#: A longer key would be no key that anybody uses: RSA with 8,192 bits takes 1,400 characters.
KEY_MAX = 2_048
#: In this order, so that a host with several keys shows the same one every time.
KEY_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
KEY_SIGNED = (*KEY_KINDS[:-1], "rsa-sha2-512", "rsa-sha2-256")
#: What every OpenSSH since 6.5 can do; the host chooses no group whose arithmetic would take seconds here.
EXCHANGES = ("curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256", "diffie-hellman-group14-sha256")


async def ssh_banner(host: str, port: int, timeout_s: float) -> tuple[bool, str]:
    """Return `(True, the version line)` when an SSH server greets within `timeout_s`; else `(False, a short reason)`.

    Never raises for a network failure. The text is reduced to printable ASCII, because the host is not ours.
    """
    forbid_in_transaction("ssh")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_MAX * 4)
            try:
                return await _greeting(reader)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        return False, f"no SSH greeting within {timeout_s:g} s"
    except (OSError, ValueError, OverflowError) as error:
        return False, f"no connection ({type(error).__name__})"


async def host_key(host: str, port: int, timeout_s: float, kind: str | None = None) -> str | None:
    """Return the server's host key as one OpenSSH line (`ssh-ed25519 AAAA…`), proved by a key exchange without a login.

    With `kind` it is asked for its key of that kind. None when it shows none within `timeout_s`. Never raises for what
    the host does, because it is not ours.
    """
    forbid_in_transaction("ssh")
    wanted = list(KEY_SIGNED) if kind is None else signatures(kind)
    if not wanted:
        return None
    asyncssh = await asyncio.to_thread(load_library)
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchanged(asyncssh, host, port, wanted)
    except (TimeoutError, OSError, ValueError, OverflowError):
        return None


async def _exchanged(asyncssh: Any, host: str, port: int, wanted: list[str]) -> str | None:
    try:
        key = await asyncssh.get_server_host_key(
            host, port, config=None, kex_algs=list(EXCHANGES), server_host_key_algs=wanted
        )
    except asyncssh.Error:  # It greets, and then does not behave like an SSH server.
        return None
    return None if key is None else _key_line(key.export_public_key("openssh"))


def signatures(kind: str) -> list[str]:
    """Return the signature algorithms of one kind of key; none for a kind that is not supported."""
    return [name for name in KEY_SIGNED if name == kind or (kind == "ssh-rsa" and name.startswith("rsa-"))]


def load_library() -> Any:
    """Load the SSH library on first use, in a thread: it takes a fifth of a second, and most commands never need it."""
    import asyncssh  # noqa: PLC0415

    # It logs a line for every connection, with what the host sent.
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    return asyncssh


def _key_line(exported: bytes) -> str | None:
    """Return kind and base64 and nothing else; None for what is not such a line."""
    words = exported.split()
    if len(words) < 2 or len(exported) > KEY_MAX or words[0].decode("ascii", "replace") not in KEY_KINDS:
        return None
    return f"{words[0].decode()} {base64.b64encode(base64.b64decode(words[1], validate=True)).decode()}"


async def _greeting(reader: asyncio.StreamReader) -> tuple[bool, str]:
    for _ in range(LINES_MAX):
        line = await reader.readline()
        if not line:
            return False, "the connection was closed without an SSH greeting"
        if line.startswith(b"SSH-"):
            return True, _printable(line)
    return False, "what answers is not an SSH server"


def _printable(line: bytes) -> str:
    return "".join(chr(byte) for byte in line.rstrip(b"\r\n")[:BANNER_SHOWN] if 32 <= byte < 127)
