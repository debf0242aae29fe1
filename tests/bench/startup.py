"""How long the program takes to begin: `--help` beside Python itself, one command through each door, and `serve`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from ledger.engine.db import Database
from ledger.kernel.states import RequestState, SessionState
from tests.bench import processes
from tests.bench.api import Line, make_key
from tests.support import rows
from tests.support.clock import START

ROUNDS = 9
#: `serve` is begun fewer times: each of them needs a port and a ledger.
STARTS = 5
PROGRAM = str(Path(sys.executable).with_name("gpu-shopper"))
SESSIONS = 500
LISTED = (PROGRAM, "sessions", "--all", "--most", str(SESSIONS))
INVENTORY = (PROGRAM, "inventory", "--gpu", "4090")


async def measure() -> AsyncIterator[Line]:
    """Medians in milliseconds; the programs' bytecode is compiled, because each is run once before it is timed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare = processes.clean_env()
        yield "python -c pass", _ms(_took([sys.executable, "-c", "pass"], bare, ROUNDS)), "what Python itself takes"
        yield "gpu-shopper --help", _ms(_took([PROGRAM, "--help"], bare, ROUNDS)), "aim < 300 ms"
        with processes.bot(folder) as running:
            key = make_key(running, folder)
            url = f"http://127.0.0.1:{running.port}"
            there = {**bare, "GPU_SHOPPER_URL": url, "GPU_SHOPPER_API_KEY": key}
            yield "gpu-shopper inventory, through REST", _ms(_took(INVENTORY, there, ROUNDS)), "aim < 600 ms"
            yield "gpu-shopper inventory, in this process", _ms(_took(INVENTORY, running.env, ROUNDS)), "aim < 1500 ms"
            await _ended_sessions(running.database_url)
            _must_list(there)
            yield f"gpu-shopper sessions, {SESSIONS} of them", _ms(_took(LISTED, there, ROUNDS)), "aim < 1500 ms"
            yield "gpu-shopper serve, until it is ready", _ms(list(_serving(folder, running.env))), "aim < 3000 ms"


async def _ended_sessions(url: str) -> None:
    """Write sessions of the key's own that have ended, so that the service leaves them alone."""
    database = Database(url)
    try:
        async with database.write() as tx:
            for _ in range(SESSIONS):
                asked = await rows.request(tx, RequestState.APPROVED, requester="consumer:bench")
                await rows.session(tx, SessionState.TERMINATED, of=asked, ended_at=START)
    finally:
        await database.close()


def _must_list(env: Mapping[str, str]) -> None:
    """Raise RuntimeError unless the list has every session, since the time of an empty one says nothing."""
    ran = subprocess.run(LISTED, env=dict(env), capture_output=True, check=True)
    if len(ran.stdout.splitlines()) < SESSIONS:
        raise RuntimeError(f"{' '.join(LISTED)} listed {len(ran.stdout.splitlines())} lines")


def _took(command: Sequence[str], env: Mapping[str, str], rounds: int) -> list[float]:
    """Seconds of each run after the first. RuntimeError with what it said when it fails."""
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        ran = subprocess.run(command, env=dict(env), capture_output=True, check=False)
        seconds.append(time.perf_counter() - began)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr.decode()[-500:]}")
    return seconds[1:]


def _serving(folder: Path, env: Mapping[str, str]) -> Iterator[float]:
    """Seconds from the start of `serve` on its own ledger until /readyz says 200; the first start is not counted."""
    data, log = folder / "started", folder / "started.log"
    for number in range(STARTS + 1):
        port = processes.free_port()
        own = {**env, "GPU_SHOPPER_PORT": str(port), "GPU_SHOPPER_DATA_DIR": str(data)}
        began = time.perf_counter()
        with processes.process([PROGRAM, "serve"], own, log):
            processes.wait_for(port, log, "/readyz")
            if number:
                yield time.perf_counter() - began


def _ms(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1000:.0f} ms"
