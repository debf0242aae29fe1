"""`make chaos`: minutes of faults against real processes on both databases, then rest, then a verdict."""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from sqlalchemy import text

from bot.clock import SystemClock
from ledger.engine.db import Database
from migrations.run import upgrade
from tests.scenarios.chaos.machine import Machine, machine
from tests.scenarios.chaos.people import People
from tests.scenarios.chaos.place import Place, place
from tests.scenarios.chaos.programs import write_off_unreachable
from tests.scenarios.chaos.trouble import Trouble
from tests.scenarios.chaos.verdict import UNFINISHED, Verdict, judge
from tests.scenarios.chaos.way_back import WayBack
from tests.support.databases import finish, postgres_template

REPLICAS = {"sqlite": 1, "postgres": 3}
#: Longer than the longest session, the search for an unknown outcome and the proof of an end together.
REST_S = 600.0
LOOK_S = 1.0
#: How often the operator looks for what no key can show any more.
OPERATOR_S = 30.0
#: By then a process that started has read the bills and corrected the ledger.
BILLS_S = 20.0


@dataclass(frozen=True)
class Run:
    """What one database's run needs. `seconds` is how long its trouble lasts."""

    database: str
    db_url: str
    folder: Path
    machine: Machine
    seconds: float
    seed: int


@dataclass
class Outcome:
    """One database's run."""

    database: str
    seconds: float
    place: Place
    verdict: Verdict
    asked: int


async def play(run: Run, turn: asyncio.Lock) -> Outcome:
    """Bring trouble while this run has the `turn`, then heal everything, wait for rest, and judge.

    A run that rests leaves the machine to the next one's trouble.
    """
    random = Random(f"{run.seed}:{run.database}")
    sockets = by_sockets(run.database, run.seed)
    async with AsyncExitStack() as stack:
        async with turn:
            made = place(run.db_url, run.folder, REPLICAS[run.database], random, run.machine, by_sockets=sockets)
            here = await stack.enter_async_context(made)
            back = WayBack(here, run.db_url, run.folder / "backups", random)
            people, trouble = People(here, random, run.seconds), Trouble(here, run.db_url, random, back)
            living, operating = asyncio.create_task(people.live()), asyncio.create_task(back.operate())
            stack.callback(living.cancel)
            stack.callback(operating.cancel)
            with suppress(TimeoutError):
                async with asyncio.timeout(run.seconds):
                    await trouble.bring()
        await _heal(here, people)
        await _rest(here)
        # A process reads every bill when it starts, and then once an hour.
        for replica in here.replicas:
            await here.kill(replica, None)
        await asyncio.sleep(BILLS_S)
        living.cancel()
        return Outcome(run.database, run.seconds, here, await judge(here.db, here.evidence()), people.asked)


async def _heal(here: Place, people: People) -> None:
    """Bring no more faults, and wait for what is under way."""
    here.proxy.rate = 0.0
    here.spare_commits()
    if here.sockets is not None:
        here.sockets.rate = 0.0
    people.is_closing = True
    async with here.ledger_lock:  # A restore that is under way is finished first.
        pass
    for replica in here.replicas:
        if not replica.is_ready:
            await _up_again(here, replica.number)
    await here.proxy.settle()


def by_sockets(database: str, seed: int) -> bool:
    """Whether Slack's messages come by Socket Mode: on one database, and with the next seed on the other one."""
    return (seed + list(REPLICAS).index(database)) % 2 == 0


async def _up_again(here: Place, number: int) -> None:
    """Wait until a replica that a kill or pause had under way is back."""
    async with asyncio.timeout(60):
        while not here.replicas[number].is_ready:  # noqa: ASYNC110 - only its log says when a process is ready.
            await asyncio.sleep(LOOK_S)


async def _rest(here: Place) -> None:
    """Return when nothing is alive and no message waits, or when the time for that is over.

    The operator writes off what was rented with a key that is replaced, if nothing shows it any more.
    """
    began = looked = time.monotonic()
    quiet = 0
    while time.monotonic() < began + REST_S and quiet < 20:
        async with here.db.read() as tx:
            waiting = await tx.scalar(text(UNFINISHED))
            open_ = await tx.scalar(text("SELECT count(*) FROM sessions WHERE state NOT IN ('terminated', 'failed')"))
        quiet = quiet + 1 if not (here.alive() or waiting or open_) else 0
        if open_ and not here.alive() and time.monotonic() > looked + OPERATOR_S:
            looked = time.monotonic()
            closed = await asyncio.to_thread(write_off_unreachable, here.replicas[0].environment, here.machine.folder)
            here.counts["machine of a replaced key written off"] += closed
        await asyncio.sleep(LOOK_S)


def table(outcome: Outcome) -> str:
    """Write what happened and what was judged as a table of Markdown."""
    here, verdict = outcome.place, outcome.verdict
    missing = here.machine.missing
    kills = sum(n for what, n in here.counts.items() if what.startswith("kill"))
    faults = sum(here.proxy.counts.values()) + sum(here.counts.values()) - kills
    rows = [
        ("processes", f"{len(here.replicas)} on {outcome.database}, {outcome.seconds / 60:.0f} min"),
        ("Slack", "Socket Mode" if here.sockets is not None else "HTTP"),
        (
            "requests acknowledged · sessions · creates sent",
            f"{outcome.asked} · {verdict.sessions} · {verdict.creates}",
        ),
        ("kills", str(kills)),
        ("faults", str(faults)),
        *((f"… {what}", str(n)) for what, n in sorted((here.counts + here.proxy.counts).items())),
        ("latest end, seconds of reachable cloud", f"{verdict.latest_s:.0f}"),
        *((f"{cloud}: booked / billed", f"${a:.2f} / ${b:.2f}") for cloud, (a, b) in sorted(verdict.bills.items())),
        *((("left out, because this machine cannot do it", ", ".join(missing)),) if missing else ()),
        ("broken", str(len(verdict.broken))),
    ]
    return "\n".join(["| What | Figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)])


def main() -> int:
    """Run what the arguments say; 1 when anything is broken."""
    parser = argparse.ArgumentParser(prog="tests.scenarios.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes of trouble, shared by the databases")
    parser.add_argument("--seed", type=int, default=SystemClock().now().toordinal())
    parser.add_argument("--databases", nargs="+", choices=sorted(REPLICAS), default=sorted(REPLICAS))
    chosen = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    # Ended like this, too, it stops its processes and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seconds = 60 * chosen.minutes / len(chosen.databases)
    with ExitStack() as stack:
        runs = [stack.enter_context(_run(database, seconds, chosen.seed)) for database in chosen.databases]
        outcomes = asyncio.run(_play_all(runs))
    for outcome in outcomes:
        sys.stdout.write(f"\n{outcome.database}, seed {chosen.seed}\n\n{table(outcome)}\n")
        sys.stdout.writelines(f"  {line}\n" for line in outcome.verdict.broken)
    return 1 if any(outcome.verdict.broken for outcome in outcomes) else 0


async def _play_all(runs: list[Run]) -> list[Outcome]:
    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as group:
        playing = [group.create_task(play(run, turn)) for run in runs]
    return [task.result() for task in playing]


@contextmanager
def _run(database: str, seconds: float, seed: int) -> Iterator[Run]:
    """Make the machine and the empty ledger of one database's run."""
    with tempfile.TemporaryDirectory(prefix="gpu-shopper-chaos-") as name, machine(Path(name)) as on:
        folder = Path(name)
        if database == "sqlite":
            yield Run(database, f"sqlite+aiosqlite:///{on.folder / 'ledger.db'}", folder, on, seconds, seed)
            return
        with postgres_template() as server:
            url = server.url("chaos")
            finish(server.execute("CREATE DATABASE chaos TEMPLATE template0"))
            # A commit is in the log before it counts, because a crash of the server must lose nothing.
            finish(server.execute("ALTER DATABASE chaos SET synchronous_commit = on"))
            finish(_migrate(url))
            yield Run(database, url, folder, on, seconds, seed)


async def _migrate(url: str) -> None:
    db = Database(url)
    await upgrade(db)
    await db.close()


if __name__ == "__main__":
    raise SystemExit(main())
