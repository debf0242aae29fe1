"""A small HTTP/1.1 load generator: signed Slack requests over kept-alive connections to 127.0.0.1.

Open loop: requests start on a timetable whether or not earlier ones were answered, so a slow server is seen as latency
and not as fewer requests. Closed loop: a fixed number of connections, each sending as soon as it was answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlencode

HOST = "127.0.0.1"
#: Requests per second that a closed loop has ready, above what any app here answers.
MOST_PER_S = 5_000
#: People whom the practice workspace has.
PEOPLE = ("U0ALICE", "U0BOB", "U0CAROL", "U0DAVE")


@dataclass
class Result:
    """Latencies in seconds of answered requests, and what went wrong: status or exception name → count."""

    latencies_s: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0

    def quantile_ms(self, share: float) -> float:
        """A quantile of the latencies in milliseconds."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else float("nan")

    @property
    def per_second(self) -> float:
        """Answered requests per second."""
        return len(self.latencies_s) / self.elapsed_s if self.elapsed_s else 0.0

    def fail(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1


def slash_command(number: int, text: str) -> dict[str, str]:
    """The form of one slash command, as Slack sends it."""
    return {
        "token": "verification",
        "team_id": "T0PRACTICE",
        "team_domain": "practice",
        "channel_id": "C0GPU",
        "channel_name": "gpu",
        # A stranger is refused, and nothing is quoted.
        "user_id": PEOPLE[number % len(PEOPLE)],
        "user_name": "somebody",
        "command": "/gpu",
        "text": text,
        "api_app_id": "A0PRACTICE",
        "is_enterprise_install": "false",
        "response_url": "http://127.0.0.1:9/response",
        "trigger_id": f"{number}.{number}.{number:08x}",
    }


def signed(port: int, secret: str, form: dict[str, str]) -> bytes:
    """The bytes of one signed POST to /slack/events."""
    body = urlencode(form)
    stamp = str(int(time.time()))  # noqa: TID251 # Slack's signature is over wall time.
    digest = hmac.new(secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
    head = (
        f"POST /slack/events HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\nX-Slack-Request-Timestamp: {stamp}\r\nX-Slack-Signature: v0={digest}\r\n\r\n"
    )
    return (head + body).encode()


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, raw: bytes) -> int:
        """Send one request and read its answer to the end; returns the status."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        try:
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            lower = head.lower()
            at = lower.find(b"content-length:")
            if at >= 0:
                await reader.readexactly(int(lower[at + 15 : lower.index(b"\r", at)]))
            elif b"transfer-encoding: chunked" in lower:
                while (size := int(await reader.readline(), 16)) > 0:
                    await reader.readexactly(size + 2)
                await reader.readline()
            return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def open_loop(
    port: int,
    rate: float,
    seconds: float,
    make: Callable[[int], bytes],
    other: tuple[int, Callable[[int], bytes]] | None = None,
) -> Result:
    """Start `rate` requests a second for `seconds`, each on a free connection.

    With an `other` server every second request goes there, and one that is not answered by either is repeated at the
    other one; its latency is that of both attempts.
    """
    result = Result()
    free: list[Connection] = []
    there: list[Connection] = []
    tasks: set[asyncio.Task[None]] = set()
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        here = (port, free, make)
        if other is None:
            work = _one(*here, number, result)
        else:
            pair = (here, (other[0], there, other[1]))
            work = _either(pair[number % 2], pair[1 - number % 2], number, result)
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    result.elapsed_s = time.perf_counter() - began
    for connection in (*free, *there):
        connection.close()
    return result


Server = tuple[int, list[Connection], Callable[[int], bytes]]


async def _either(first: Server, second: Server, number: int, result: Result) -> None:
    attempt, began = Result(), time.perf_counter()
    await _one(*first, number, attempt)
    if attempt.errors:
        attempt = Result()
        await _one(*second, number, attempt)
    if attempt.latencies_s:
        result.latencies_s.append(time.perf_counter() - began)
    for what in attempt.errors:
        result.fail(what)


async def closed_loop(port: int, connections: int, seconds: float, make: Callable[[int], bytes]) -> Result:
    """Keep `connections` requests in flight for `seconds`, or until `MOST_PER_S` were sent in each of them.

    They are made before the clock starts, so that what is measured does not wait for this generator.
    """
    result = Result()
    ready = [make(number) for number in range(int(MOST_PER_S * seconds))]
    began = time.perf_counter()
    numbers = iter(range(len(ready)))
    free: list[Connection] = []
    await asyncio.gather(
        *(_keep_sending(port, free, ready.__getitem__, numbers, result, began + seconds) for _ in range(connections))
    )
    result.elapsed_s = time.perf_counter() - began
    for connection in free:
        connection.close()
    return result


async def _keep_sending(
    port: int,
    free: list[Connection],
    make: Callable[[int], bytes],
    numbers: Iterator[int],
    result: Result,
    until: float,
) -> None:
    for number in numbers:
        if time.perf_counter() >= until:
            break
        await _one(port, free, make, number, result)


async def _one(port: int, free: list[Connection], make: Callable[[int], bytes], number: int, result: Result) -> None:
    connection = free.pop() if free else Connection(port)
    raw = make(number)
    began = time.perf_counter()
    try:
        status = await connection.exchange(raw)
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        result.fail(type(error).__name__)
        return
    if status == 200:
        result.latencies_s.append(time.perf_counter() - began)
    else:
        result.fail(str(status))
    free.append(connection)
