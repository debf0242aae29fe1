"""Attack an HTTP server: `python -m tests.scenarios.processes.strangers PORT SECONDS STRANGERS SILENT SLOW`.

It is a process of its own, so that its processor time is counted apart; it prints what it saw as one line of JSON.

STRANGERS call every open route without end. SILENT ask for large pages and never read. SLOW send a body byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

HOST = "127.0.0.1"
#: A stranger who got no answer calls again after so long, and gives up on one answer after so long.
AGAIN_S, PATIENCE_S = 0.01, 60.0
#: So many pages does each of those ask for who never read.
PAGES = 40


@dataclass
class Seen:
    """How the calls went (status, or the error's name → count) and what this process took."""

    answers: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    processor_s: float = 0.0


def call(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """The bytes of one call."""
    length = (f"Content-Length: {len(body)}",) if body else ()
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {HOST}", *headers, *length, "", ""]).encode() + body


def signature() -> tuple[str, str]:
    """The headers that a signed request has, with a signature that is nobody's."""
    stamp = int(time.time())  # noqa: TID251 # Slack's signature is over wall time.
    return f"X-Slack-Request-Timestamp: {stamp}", f"X-Slack-Signature: v0={'0' * 64}"


def routes() -> list[bytes]:
    """One call of every route that is open to strangers, and of those that refuse them."""
    wrong_key, wrong_token = f"gpuk_{'a' * 12}_{'b' * 43}", f"gpuc_{'a' * 16}_{'b' * 43}"
    return [
        b"GET nothing that is a request\r\n\r\n",
        call("GET", "/docs"),
        call("GET", "/openapi.json"),
        call("GET", "/healthz"),
        call("GET", "/readyz"),
        call("GET", "/nothing"),
        call("GET", "/agent.pyz"),
        call("GET", "/metrics"),
        call("GET", "/api/v1/sessions"),
        call("GET", "/api/v1/sessions", f"Authorization: Bearer {wrong_key}"),
        call("POST", "/agent/v1/checkin", f"Authorization: Bearer {wrong_token}", body=b"{}"),
        call("POST", "/slack/events", body=b"text=help"),
        call("POST", "/slack/events", *signature(), body=b"text=help&command=%2Fgpu"),
    ]


async def stranger(port: int, raw: bytes, seen: Seen, until: float) -> None:
    """Call one route without end, each time on a new connection."""
    while time.monotonic() < until:
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(HOST, port)
                seen.connections += 1
                try:
                    writer.write(raw)
                    head = await reader.readuntil(b"\r\n\r\n")
                    await body_of(reader, head)
                    seen.answers[head[9:12].decode()] += 1
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            seen.answers[type(error).__name__] += 1
            await asyncio.sleep(AGAIN_S)


async def body_of(reader: asyncio.StreamReader, head: bytes) -> None:
    """Read what the head announces."""
    lower = head.lower()
    at = lower.find(b"content-length:")
    if at >= 0:
        await reader.readexactly(int(lower[at + 15 : lower.index(b"\r", at)]))


async def silent(port: int, seen: Seen, until: float) -> None:
    """Ask for many large pages, read none, and come back when the connection is closed."""
    loop = asyncio.get_running_loop()
    while time.monotonic() < until:
        with contextlib.suppress(OSError, TimeoutError), socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            async with asyncio.timeout(PATIENCE_S):
                await loop.sock_connect(one, (HOST, port))
            seen.connections += 1
            asked = 0
            while time.monotonic() < until:
                # Nothing is read, so only a write shows that the other end has gone.
                async with asyncio.timeout(1):
                    await loop.sock_sendall(one, call("GET", "/docs" if asked % 2 else "/openapi.json"))
                asked += 1
                if asked > 4:
                    await asyncio.sleep(1.0)
        await asyncio.sleep(AGAIN_S)


async def slow(port: int, seen: Seen, until: float) -> None:
    """Send the body of what looks like a message of Slack's byte by byte."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                _, writer = await asyncio.open_connection(HOST, port)
            seen.connections += 1
            writer.write(call("POST", "/slack/events", *signature(), body=b"a" * 60_000)[:-60_000])
            try:
                while time.monotonic() < until and not writer.is_closing():
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.sleep(0.5)
            finally:
                writer.transport.abort()
        await asyncio.sleep(AGAIN_S)


async def attack(port: int, seconds: float, strangers: int, silents: int, slows: int) -> Seen:
    """All of them at once, for so long."""
    seen, until, calls = Seen(), time.monotonic() + seconds, routes()
    tasks = [
        *(asyncio.create_task(stranger(port, calls[n % len(calls)], seen, until)) for n in range(strangers)),
        *(asyncio.create_task(silent(port, seen, until)) for _ in range(silents)),
        *(asyncio.create_task(slow(port, seen, until)) for _ in range(slows)),
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seen.processor_s = used.ru_utime + used.ru_stime
    return seen


def main() -> None:
    """Raise the limit of open files, attack, and print what was seen."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, seconds, *counts = sys.argv[1:]
    seen = asyncio.run(attack(int(port), float(seconds), *map(int, counts)))
    print(json.dumps(vars(seen)))


if __name__ == "__main__":
    main()
