"""`python -m tests.scenarios.kills --kills 1000`: kill real processes at every await of every failpoint, and judge."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.scenarios.kills.commit_cuts import commit_cuts
from tests.scenarios.kills.cuts import Aim, CutRota
from tests.scenarios.kills.failpoints import FAILPOINTS, Arm, Failpoint, Phase
from tests.scenarios.kills.power import disk, missing
from tests.scenarios.kills.power_walk import power_walk
from tests.scenarios.kills.walk import Kill, Walk
from tests.scenarios.kills.way_back import Back, WayBack, turns
from tests.scenarios.processes.processes import Nursery, nursery
from tests.support.databases import PostgresTemplate, copy_sqlite, memory_folder, migrated_sqlite, postgres_template
from tests.support.stack import town

PROGRAM = "python -m tests.scenarios.kills"
#: What each database's walks rent from, in turns.
CLOUDS = {"sqlite": ("vast", "lambda"), "postgres": ("runpod", "tensordock")}
#: In so many walks nothing died at this await: the function has no more of them, and its first one is next.
MISSES = 2


@dataclass
class Rota:
    """Which await of which failpoint is next in each phase."""

    awaits: dict[Failpoint, int] = field(default_factory=lambda: dict.fromkeys(FAILPOINTS, 1))
    most: Counter[Failpoint] = field(default_factory=Counter)
    misses: Counter[Failpoint] = field(default_factory=Counter)
    kills: Counter[Failpoint] = field(default_factory=Counter)
    _turns: dict[Phase, Iterator[Failpoint]] = field(default_factory=dict)

    def plan(self) -> dict[Phase, Kill]:
        """Take the next failpoint of each phase."""
        if not self._turns:
            for phase in Phase:
                self._turns[phase] = itertools.cycle([one for one in FAILPOINTS if one.phase is phase])
        chosen = {phase: next(turn) for phase, turn in self._turns.items()}
        return {phase: Kill(point, self.awaits[point]) for phase, point in chosen.items()}

    def learn(self, plan: dict[Phase, Kill], killed: list[Kill]) -> None:
        """Go on to the next await where a process died, and to the first one where there was no more."""
        self.kills.update(one.point for one in killed)
        for kill in plan.values():
            point = kill.point
            if kill in killed:
                self.most[point] = max(self.most[point], kill.awaits)
                self.awaits[point], self.misses[point] = kill.awaits + 1, 0
                continue
            self.misses[point] += 1
            if self.misses[point] >= MISSES:
                self.awaits[point], self.misses[point] = 1, 0

    def table(self) -> str:
        """Write what died where."""
        rows = [f"| {one} ({one.phase}) | {self.kills[one]} | {self.most[one]} |" for one in FAILPOINTS]
        return "\n".join(["| Failpoint | Kills | Last await |", "|---|---:|---:|", *rows])


@dataclass(frozen=True)
class Ground:
    """Where walks take place: a folder in memory, and a fresh database for each of them."""

    parent: Nursery
    folder: Path
    migrated: Path
    server: PostgresTemplate | None

    async def powered(self, cloud: str, plan: dict[Phase, Kill]) -> list[Kill]:
        """Play one walk on SQLite in which the power fails with each process. Returns the kills."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name, disk(Path(name)) as ext4:
            async with power_walk(ext4, self.migrated, Path(name), self.parent, cloud, plan) as walk:
                await walk.play()
                return walk.killed

    async def walk(
        self, cloud: str, plan: dict[Phase, Kill], aim: Aim, turn: tuple[Back, Phase] | None, ways: Counter[Back]
    ) -> list[Kill]:
        """Play one walk. Returns its kills. PostgreSQL is reached through the proxy that cuts COMMITs.

        The `turn` says how operators go back in it; `ways` counts how often they did.
        """
        async with AsyncExitStack() as stack:
            own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
            clone = self.server.clone() if self.server is not None else None
            url = await stack.enter_async_context(clone) if clone is not None else copy_sqlite(self.migrated, own)
            place = await stack.enter_async_context(town(url, own, self.parent, cloud))
            if self.server is not None:
                cut_url, cuts = await stack.enter_async_context(commit_cuts(url, own / "pg"))
                aim.at(cuts)
                place.environment = {**place.environment, "GPU_SHOPPER_DATABASE_URL": cut_url}
            back = WayBack(place, own, *turn) if turn is not None else None
            walk = Walk(place, plan, Arm(own / "dies-at"), own / "dies-at", aim, back)
            await walk.play()
            if back is not None and back.is_done:
                ways[back.what] += 1
            return walk.killed


def run(database: str, kills: int, cloud: str = "") -> int:
    """Walk until so many processes died. Returns how many walks broke an invariant or did not end."""
    rota, commits, broken, walks, failures, began_s = Rota(), CutRota(), 0, 0, 0, time.monotonic()
    ways, turn = Counter[Back](), turns()
    has_power = database == "sqlite" and not missing()
    with ExitStack() as stack:
        folder = stack.enter_context(memory_folder()) or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "template").mkdir()
        server = stack.enter_context(postgres_template()) if database == "postgres" else None
        parent = stack.enter_context(nursery())
        ground = Ground(parent, folder, migrated_sqlite(folder / "template"), server)
        while rota.kills.total() + commits.cuts.total() < kills:
            plan, aim = rota.plan(), Aim(commits.plan() if database == "postgres" else {})
            where = cloud or CLOUDS[database][walks % len(CLOUDS[database])]
            # Every second pair of walks, so that each cloud has its turn.
            fails = has_power and walks // len(CLOUDS[database]) % 2 == 1
            going = None if fails else next(turn)
            try:
                killed = asyncio.run(
                    ground.powered(where, plan) if fails else ground.walk(where, plan, aim, going, ways)
                )
                failures += len(killed) if fails else 0
            except (AssertionError, TimeoutError) as error:
                broken += 1
                killed = []
                planned = ", ".join(map(str, [*plan.values(), *(made for _, made in aim.made)]))
                how = ", without power" if fails else f", {' after '.join(going)}" if going is not None else ""
                _say(f"{database} {where} {planned}{how}: {type(error).__name__}: {error}")
            rota.learn(plan, killed)
            commits.learn(aim)
            walks += 1
            if walks % 10 == 0:
                _say(f"{_counted(database, rota, commits)} in {walks} walks, {time.monotonic() - began_s:.0f} s")
    _say(f"\n{_counted(database, rota, commits)} in {walks} walks, {broken} broken\n{rota.table()}")
    if ways:
        _say("\n" + ", ".join(f"{what}: {number}" for what, number in ways.items()))
    if failures:
        _say(f"\nWith {failures} of these kills the power failed.")
    if commits.cuts:
        _say(f"\n{commits.table()}")
    return broken


def _counted(database: str, rota: Rota, commits: CutRota) -> str:
    return f"{database}: {rota.kills.total()} kills and {commits.cuts.total()} cut COMMITs"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run both databases side by side; 1 when anything is broken."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=1000, help="how many processes are killed and COMMITs cut, on both databases"
    )
    parser.add_argument("--cloud", default="", help="rent from this cloud only")
    parser.add_argument("--database", choices=sorted(CLOUDS), help="one database alone, in this process")
    chosen = parser.parse_args()
    if chosen.database:
        return 1 if run(chosen.database, chosen.kills, chosen.cloud) else 0
    command = [sys.executable, "-m", "tests.scenarios.kills", "--kills", str(-(-chosen.kills // 2)), "--database"]
    running = [subprocess.Popen([*command, database]) for database in CLOUDS]
    return max(one.wait() for one in running)


if __name__ == "__main__":
    raise SystemExit(main())
