"""Measure the figures of the release's aims for speed, with the code of the folder that it runs in; prints JSON.

It is a program of its own and uses only what earlier commits have as well, so that `table` can run it in an older tree.
Times are processor time: other work on the machine changes them less than time on the clock.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ledger.engine.db import Database
from tests.bench import api, fleet, processes
from tests.bench.load import closed_loop, open_loop, signed, slash_command
from tests.support.databases import copy_sqlite, migrated_sqlite

#: People whom the practice workspace has: a stranger is refused, and nothing is quoted.
PEOPLE = ("U0ALICE", "U0BOB", "U0CAROL", "U0DAVE")
COMMAND = 'provision 1x4090 2h for="bench"'
REQUESTS, RATE = 400, 200.0
FEW, MANY = 10_000, 100_000
ROUNDS, STARTS = 5, 3
LIMIT_S = 4.0
#: What the process does as `serve` does it, where the code has it.
PROGRAM = (sys.executable, "-c", "import sys; sys.argv[0] = 'gpu-shopper'; from bot.cli import main; main()")

Figures = dict[str, float]


def _found(module: str, name: str) -> Any:
    """Return something that an older tree may not have; None then."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


async def _cpu_s(step: Callable[[fleet.Fleet], Any], of: fleet.Fleet) -> float:
    gc.collect()
    began = time.process_time()
    await step(of)
    return time.process_time() - began


async def passes() -> Figures:
    """The passes over a fleet on SQLite, and one approval's budget check."""
    if (thresholds := _found("bot.main", "GC_THRESHOLDS")) is not None:
        gc.freeze()
        gc.set_threshold(*thresholds)
    settle = _found("bot.services.budgets.open_spend", "settle_due")
    steps = {label: step for label, step, _ in fleet.STEPS}
    found: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = Database(copy_sqlite(migrated_sqlite(folder), folder))
        some = fleet.Fleet(db)
        await some.grow(FEW)
        for label in ("metering after hours without it", "the rollup of that"):
            await steps[label](some)
        found["metering"] = await _cpu_s(steps["metering, one hour of each"], some)
        await steps["the rollup of that hour"](some)
        found["sweep"] = await _cpu_s(steps["sweep, nothing has changed"], some)
        found["overspend"] = await _cpu_s(steps["spend drift"], some)
        for size, label in ((FEW, "budget 10k"), (MANY, "budget 100k")):
            await some.grow(size - len(some.tokens))
            while settle is not None and await settle(some.ctx):
                pass
            found[label] = await _cpu_s(steps["one approval against its budgets"], some)
        await db.close()
    return found


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _of_process(pid: int) -> float:
    """Processor time of a process that runs, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command_s(arguments: Sequence[str], env: dict[str, str]) -> float:
    """The median of some runs after the first."""
    took = []
    for _ in range(ROUNDS + 1):
        began = _of_children()
        subprocess.run([*PROGRAM, *arguments], env=env, capture_output=True, check=True)
        took.append(_of_children() - began)
    return median(took[1:])


def _ready_s(folder: Path, env: dict[str, str]) -> float:
    """The processor time of `serve` until it is ready, without the first start, which makes the ledger."""
    took = []
    for _ in range(STARTS + 1):
        port, log = processes.free_port(), folder / "started.log"
        own = {**env, "GPU_SHOPPER_PORT": str(port), "GPU_SHOPPER_DATA_DIR": str(folder / "started")}
        with processes.process([*PROGRAM, "serve"], own, log) as started:
            processes.wait_for(port, log, "/readyz")
            took.append(_of_process(started.pid))
    return median(took[1:])


def _slack(port: int) -> Callable[[int], bytes]:
    def make(number: int) -> bytes:
        form = slash_command(number, COMMAND) | {"user_id": PEOPLE[number % len(PEOPLE)]}
        return signed(port, processes.SECRET, form)

    return make


async def _drained(running: processes.Running) -> tuple[float, float]:
    """Requests a second of the clock, and a second of the bot's processor time, until nothing of a burst waits."""
    waiting_rows = _found("ledger.queries.metrics", "waiting_rows")
    used, began = _of_process(running.process.pid), time.perf_counter()
    await open_loop(running.port, RATE, REQUESTS / RATE, _slack(running.port))
    db = Database(running.database_url)
    while True:
        async with db.read() as tx:
            if not sum((await waiting_rows(tx)).values()):
                break
        await asyncio.sleep(0.3)
    await db.close()
    wall_s, cpu_s = time.perf_counter() - began, _of_process(running.process.pid) - used
    return REQUESTS / wall_s, REQUESTS / cpu_s


async def programs() -> Figures:
    """The programs, each as processes of its own."""
    env = processes.clean_env(PYTHONPATH=str(Path.cwd()))
    found = {"help": _command_s(["--help"], env)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with processes.bot(folder) as running:
            there = {**running.env, "PYTHONPATH": str(Path.cwd())}
            found["inventory"] = _command_s(["inventory", "--gpu", "4090"], there)
            found["serve"] = _ready_s(folder, there)
            get = api.get(running.port, api.make_key(running, folder))
            await open_loop(running.port, api.RATE, api.WARM / api.RATE, get)
            ours = await closed_loop(running.port, api.CONNECTIONS, LIMIT_S, get)
            found["drained a second"], found["drained a cpu second"] = await _drained(running)
        with api.bare(folder) as port:
            peer = await closed_loop(port, api.CONNECTIONS, LIMIT_S, api.get(port, "x", api.PATHS[:1]))
    found["rest"] = ours.per_second / peer.per_second
    return found


def main() -> None:
    """Print all figures."""
    print(json.dumps({**asyncio.run(passes()), **asyncio.run(programs())}))


if __name__ == "__main__":
    main()
