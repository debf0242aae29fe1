"""`make bench`: what the service does under load on this machine, beside a peer or a limit of the same run."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ledger.engine.db import Database
from ledger.queries.metrics import waiting_rows
from tests.bench import processes
from tests.bench.agent import measure as measure_agent
from tests.bench.agent import measure_files as measure_agent_files
from tests.bench.api import measure as measure_api
from tests.bench.api import replicas as measure_replicas
from tests.bench.fleet import report as measure_fleet
from tests.bench.large_ledgers.backups import report as measure_backups
from tests.bench.large_ledgers.costs import report as measure_costs
from tests.bench.latency import measure as measure_latency
from tests.bench.load import PEOPLE, Result, closed_loop, open_loop, signed, slash_command
from tests.bench.market import market as measure_market
from tests.bench.ranking import MISSED
from tests.bench.ranking import ranking as measure_ranking
from tests.bench.speeds.cold import cold as measure_cold
from tests.bench.speeds.table import report as measure_speed
from tests.bench.startup import measure as measure_startup
from tests.bench.statements import report as measure_statements
from tests.bench.surface import report as measure_surface
from tests.bench.throughput_accept import main as judge_throughput
from tests.bench.throughput_check import main as check_throughput
from tests.bench.throughput_data import VARIABLE, at_hand
from tests.bench.throughput_ranking import main as rank_throughput
from tests.scenarios.nodes.ready import measure as measure_ready

RATE = 200.0
SECONDS = 30.0
#: So many are in flight at saturation that neither app ever waits for the generator.
CONNECTIONS = 256
SATURATE_S = 8.0
DRAIN_S = 240.0
#: Parts that run only when they are named: one needs 6 GB of disk, and the other repeats figures of the rest.
ASKED_FOR = ("agent-files", "speed")
TEXT = 'provision 1x4090 2h for="bench"'


def _make(port: int) -> Callable[[int], bytes]:
    return lambda number: signed(port, processes.SECRET, slash_command(number, TEXT))


async def _waiting(url: str) -> dict[str, int]:
    database = Database(url)
    try:
        async with database.read() as tx:
            return await waiting_rows(tx)
    finally:
        await database.close()


def _line(name: str, value: str, aim: str = "") -> None:
    print(f"  {name:<44} {value:>14}   {aim}", flush=True)


def _latency(result: Result) -> None:
    _line("answered / errors", f"{len(result.latencies_s)} / {sum(result.errors.values())}", "no errors")
    _line("ack p50", f"{result.quantile_ms(0.50):.1f} ms")
    _line("ack p99", f"{result.quantile_ms(0.99):.1f} ms", "aim < 250 ms")
    if result.errors:
        _line("errors", str(result.errors))


async def ack(seconds: float, database_url: str | None) -> None:
    """200 signed commands a second, each with its real follow-up, then how long the rest takes."""
    print(
        f"\nAcknowledgements: {RATE:.0f} signed /gpu provision a second for {seconds:.0f} s, with their follow-up work"
    )
    # Each of the workspace's people may have 1,000 open requests.
    seconds = min(seconds, 1_000 * len(PEOPLE) / RATE)
    with tempfile.TemporaryDirectory() as folder, processes.bot(Path(folder), database_url) as running:
        result = await open_loop(running.port, RATE, seconds, _make(running.port))
        _latency(result)
        left = await _waiting(running.database_url)
        _line("backlog at the end", str(sum(left.values())), str({k: v for k, v in left.items() if v}))
        began = time.perf_counter()
        # The backlog is worked off in another process, so no event of this one can tell.
        while sum((await _waiting(running.database_url)).values()) and time.perf_counter() - began < DRAIN_S:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        took = time.perf_counter() - began
        done = await _waiting(running.database_url)
        _line(
            "backlog drained after",
            f"{took:.1f} s",
            f"{sum(left.values()) / took:.0f} rows/s; {sum(done.values())} left",
        )


async def saturation() -> None:
    """The ack path alone, as fast as it goes, beside a bare Bolt app in the same run."""
    print(f"\nSaturation: {CONNECTIONS} connections for {SATURATE_S:.0f} s each")
    with tempfile.TemporaryDirectory() as folder:
        with processes.bare(Path(folder)) as port:
            peer = await closed_loop(port, CONNECTIONS, SATURATE_S, _make(port))
        with processes.bot(Path(folder)) as running:
            ours = await closed_loop(running.port, CONNECTIONS, SATURATE_S, _make(running.port))
    _line(
        "bare Bolt, acks only", f"{peer.per_second:.0f}/s", f"p99 {peer.quantile_ms(0.99):.0f} ms, errors {peer.errors}"
    )
    _line(
        "ours, stored before the ack",
        f"{ours.per_second:.0f}/s",
        f"p99 {ours.quantile_ms(0.99):.0f} ms, errors {ours.errors}",
    )
    _line("ratio", f"{ours.per_second / peer.per_second:.2f}", "aim ≥ 0.5")


async def market() -> None:
    """What filtering and ranking cost, without the clouds."""
    print("\nMarket: offers of 5 clouds, injected above the transport, filtered and ranked")
    for name, value, aim in await measure_market():
        _line(name, value, aim)


async def ranking() -> None:
    """What ranking a large market costs, beside a peer."""
    print("\nRanking: offers in memory, with every total, beside gpuhunt's query for the same rows")
    value = ""
    for name, value, aim in measure_ranking():
        _line(name, value, aim)
    if value == MISSED:
        raise SystemExit("the aim of the ranking is missed")


async def costs() -> None:
    """What reading a month's costs takes."""
    print("\nCosts: a month by owner, cloud, GPU, label and tool, from the rollup, beside grouping the entries")
    async for name, value, aim in measure_costs():
        _line(name, value, aim)


async def fleet() -> None:
    """What each pass of the scheduler takes with many instances."""
    print("\nFleet: each pass over 1k, 10k and 100k live instances, listings injected above the transport")
    async for name, value, aim in measure_fleet():
        _line(name, value, aim)


async def backups() -> None:
    """What a backup and a restore of a large ledger take."""
    print("\nBackups: 10,000 sessions with their journal, in one archive and back")
    async for name, value, aim in measure_backups():
        _line(name, value, aim)


async def throughput() -> None:
    """How well tokens/s are predicted, where the published measurements are at hand."""
    print("\nThroughput: published measurements that the prediction has not seen", flush=True)
    missed = rank_throughput([])
    if at_hand():
        print("\nThe same as users get it: layout free, stack left out", flush=True)
        missed += judge_throughput([]) + check_throughput([])
    else:
        print(f"  the rest is skipped: set {VARIABLE} to the folder with the published measurements", flush=True)
    if missed:
        raise SystemExit("the throughput targets are missed")


async def latency() -> None:
    """What people wait for."""
    print("\nWaiting: a whole service in one process, with the sandboxes of all clouds")
    for name, value, aim in await measure_latency():
        _line(name, value, aim)


async def cold() -> None:
    """What the first request of a cold market waits for."""
    print("\nCold: 40 first requests at the documented pace of each cloud, on a clock that only waits move")
    for name, value, aim in await measure_cold():
        _line(name, value, aim)


async def surface() -> None:
    """What one process takes to make what people see."""
    print("\nSurface: a request card, lists of 500 sessions and pages of 20,000 offers, in this process's CPU time")
    async for name, value, aim in measure_surface():
        _line(name, value, aim)


async def statements() -> None:
    """How many SQL statements one rental takes, by job and by function."""
    print("\nStatements: one rental of two hours, from its request to the digest, on SQLite")
    async for name, value, aim in measure_statements():
        _line(name, value, aim)


async def startup() -> None:
    """How long the program takes to begin."""
    print("\nStarting: the program, in processes of its own, beside Python itself")
    async for name, value, aim in measure_startup():
        _line(name, value, aim)


async def speed() -> None:
    """The aims of the release for speed, in one table; `OLD=COMMIT` measures that commit in the same run."""
    print("\nSpeed: before, now and the aims, in processor time")
    for name, value, aim in measure_speed():
        print(f"  {name:<56} {value:>10}   {aim}", flush=True)


async def agent() -> None:
    """How the agent on a rented machine starts, and what its API takes."""
    print("\nAgent: the built file as processes, its API over TLS, its chat proxy beside the local server itself")
    for name, value, aim in measure_agent():
        _line(name, value, aim)


async def ready() -> None:
    """How long a request takes until its machine is ready."""
    print("\nReady: from a request in Slack to a machine that is checked, with real machines at each sandbox")
    async for name, value, aim in measure_ready():
        _line(name, value, aim)


async def agent_files() -> None:
    """Large files through the agent's API."""
    print("\nAgent's files: 2 GiB up and down over TLS, through connections that drop")
    for name, value, aim in measure_agent_files():
        _line(name, value, aim)


async def api(seconds: float) -> None:
    """Reads of the REST API, and the limit beside FastAPI without a database."""
    print(f"\nREST: 100 reads a second for {seconds:.0f} s, over GET /inventory and GET /sessions")
    for name, value, aim in await measure_api(seconds):
        _line(name, value, aim)


async def replicas(seconds: float) -> None:
    """The same on two replicas, of which one is killed."""
    print(f"\nREST on PostgreSQL: two replicas for {seconds:.0f} s, then as long while one of them is killed -9")
    for name, value, aim in await measure_replicas(seconds):
        _line(name, value, aim)


def main() -> None:
    """Run all parts, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of each phase of a load")
    runs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "market": market,
        "ranking": ranking,
        "costs": costs,
        "fleet": fleet,
        "backups": backups,
        "throughput": throughput,
        "latency": latency,
        "cold": cold,
        "surface": surface,
        "statements": statements,
        "startup": startup,
        "speed": speed,
        "agent": agent,
        "agent-files": agent_files,
        "ready": ready,
        "api": lambda: api(chosen.seconds),
        "replicas": lambda: replicas(chosen.seconds),
        "ack": lambda: ack(chosen.seconds, None),
        "saturation": saturation,
    }
    parser.add_argument("parts", nargs="*", choices=[*runs, []], help=f"default: all but {', '.join(ASKED_FOR)}")
    chosen = parser.parse_args()
    for part in chosen.parts or [one for one in runs if one not in ASKED_FOR]:
        asyncio.run(runs[part]())


if __name__ == "__main__":
    main()
