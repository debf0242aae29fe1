"""The REST API under load: an open loop of reads, the closed-loop limit beside bare FastAPI, and two replicas of which
one is killed.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import processes
from tests.bench.load import HOST, Result, closed_loop, open_loop
from tests.support.databases import postgres_template

RATE, SECONDS, LIMIT_S, CONNECTIONS = 100.0, 30.0, 8.0, 32
PATHS = ("/api/v1/inventory?gpu=4090", "/api/v1/sessions")
#: A warm market and warm caches: the first question of a minute asks the clouds.
WARM = 50

Line = tuple[str, str, str]


def get(port: int, key: str, paths: tuple[str, ...] = PATHS) -> Callable[[int], bytes]:
    """The bytes of the `n`-th GET."""

    def make(number: int) -> bytes:
        path = paths[number % len(paths)]
        return f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()

    return make


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else float("nan")


def make_key(running: processes.Running, folder: Path) -> str:
    """An API key of a program, made on the server as an operator would."""
    program = str(Path(sys.executable).with_name("gpu-shopper"))
    env = processes.clean_env(
        GPU_SHOPPER_DATA_DIR=str(folder / "data"), GPU_SHOPPER_DATABASE_URL=running.database_url, VAST_API_KEY="x"
    )
    made = subprocess.run(
        [program, "keys", "create", "bench", "--owner", "operator:ada"], env=env, capture_output=True, check=True
    )
    return made.stdout.decode().split()[-1]


def told(name: str, result: Result) -> Iterator[Line]:
    """One open loop in three lines."""
    failed = sum(result.errors.values())
    yield f"{name}: answered / errors", f"{len(result.latencies_s)} / {failed}", f"no errors {result.errors or ''}"
    yield f"{name}: p50", f"{result.quantile_ms(0.5):.1f} ms", ""
    yield f"{name}: p99", f"{result.quantile_ms(0.99):.1f} ms", "aim < 250 ms"


async def measure(seconds: float) -> list[Line]:
    """One process on SQLite, and the limit beside FastAPI without a database."""
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with processes.bot(folder) as running:
            make = get(running.port, make_key(running, folder))
            await open_loop(running.port, RATE, WARM / RATE, make)
            before = rss_mb(running.process.pid)
            result = await open_loop(running.port, RATE, seconds, make)
            after = rss_mb(running.process.pid)
            lines += told("open loop, 100/s", result)
            lines.append(("memory before / after", f"{before:.0f} / {after:.0f} MB", "flat"))
            ours = await closed_loop(running.port, CONNECTIONS, LIMIT_S, make)
        with bare(folder) as port:
            peer = await closed_loop(port, CONNECTIONS, LIMIT_S, get(port, "x", PATHS[:1]))
    lines.append(("closed loop, ours", f"{ours.per_second:.0f}/s", f"errors {ours.errors}"))
    lines.append(("closed loop, FastAPI without a database", f"{peer.per_second:.0f}/s", f"errors {peer.errors}"))
    lines.append(("ratio", f"{ours.per_second / peer.per_second:.2f}", ""))
    return lines


async def replicas(seconds: float) -> list[Line]:
    """Two processes on one PostgreSQL: the same load, then again while one is killed and its callers go on.

    Each of the two phases takes `seconds`.
    """
    with tempfile.TemporaryDirectory() as name, postgres_template() as template:
        async with template.clone() as url:
            folder = Path(name)
            with processes.bot(folder, url) as first, processes.another(folder, first) as second:
                key = make_key(first, folder)
                makes = {one.port: get(one.port, key) for one in (first, second)}
                for port, make in makes.items():
                    await open_loop(port, RATE, WARM / RATE, make)
                lost, kept = await asyncio.gather(
                    open_loop(first.port, RATE / 2, seconds, makes[first.port]),
                    open_loop(second.port, RATE / 2, seconds, makes[second.port]),
                )
                lines = [*told("two replicas, 50/s each, one", lost), *told("the other", kept)]
                survived = await _killed(first, second, makes, seconds)
                lines += told("100/s over both, one killed -9 half way", survived)
    return lines


async def _killed(
    first: processes.Running, second: processes.Running, makes: dict[int, Callable[[int], bytes]], seconds: float
) -> Result:
    """Callers of both replicas, who turn to the other one when theirs does not answer, as a load balancer does."""
    end = asyncio.get_running_loop().call_later(seconds / 2, first.process.kill)
    try:
        return await open_loop(first.port, RATE, seconds, makes[first.port], (second.port, makes[second.port]))
    finally:
        end.cancel()


@contextmanager
def bare(folder: Path) -> Iterator[int]:
    """The bare application; yields its port."""
    port, log = processes.free_port(), folder / "bare-api.log"
    with processes.process([sys.executable, "-m", "tests.bench.bare_api", str(port)], processes.clean_env(), log):
        processes.wait_for(port, log)
        yield port
