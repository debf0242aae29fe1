"""Trying an SSH endpoint for real: a TCP connect and the server's version line (RFC 4253, section 4.2)."""

from __future__ import annotations

import asyncio
import contextlib

from ledger.values import forbid_in_transaction

#: RFC 4253: a server may send other lines first; a line has at most 255 bytes.
LINES_MAX = 20
LINE_MAX = 255
BANNER_SHOWN = 80


async def ssh_banner(host: str, port: int, timeout_s: float) -> tuple[bool, str]:
    """`(True, the version line)` when an SSH server greets within `timeout_s`; else `(False, why in a few words)`.

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
