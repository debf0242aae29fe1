"""`python -m tests.mutants --old COMMIT`: exits 1 if a mutant that the old suite kills survives the new one.

The old suite runs on the old commit and the new suite on HEAD; a mutant is the same change of the same function in
both. What was found is kept in `.mutants`, so that a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutants.draw import AREAS, Change, Draw, Mutant, functions, original, plainly_called, tree_of
from tests.mutants.suites import OutOfTimeError, Row, Store, Suite
from tests.mutants.table import Found, survivors, table

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".mutants"
#: The commit before the tree was moved.
BASE = "f8386fd"
TESTS = ("tests/rules", "tests/ledger", "tests/services")
#: Its time was over: run it again.
UNFINISHED = 3


def watched(sources: Mapping[str, str], changes: Sequence[Change]) -> list[Change]:
    """Every function of the areas and of the drawn mutants, as it is: a newer draw needs no other."""
    places = {(change.path, change.name) for change in changes}
    for path, source in sources.items():
        if path.startswith(tuple(f"{area}/" for area in AREAS)):
            places |= {(path, name) for name, function in functions(source) if plainly_called(function)}
    return [original(path, name, sources[path]) for path, name in sorted(places)]


def short(root: Path, commit: str) -> str:
    """The first characters of a commit's hash."""
    command = ["git", "rev-parse", "--short=12", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Comparison:
    """One run: the draw, then the new suite, then the old one, then what is in doubt again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._old, self._new = short(ROOT, options.old), short(ROOT, "HEAD")
        self._sources = {commit: tree_of(ROOT, commit) for commit in (self._old, self._new)}
        self._deadline = time.monotonic() + 60 * options.minutes
        draw = Draw(tree_of(ROOT, short(ROOT, BASE)), self._sources[self._old], self._sources[self._new])
        self._drawn = {area: draw.draw(area, options.drawn, options.seed) for area in options.areas}
        self._key = hashlib.sha256(" ".join(options.tests).encode()).hexdigest()[:8]

    def run(self) -> dict[str, Found]:
        """Judge every mutant by both suites; what only the old one kills is tried again, without a budget."""
        every = [mutant for _, drawn in self._drawn.values() for mutant in drawn]
        budget_s = self._options.budget
        new, old = self._suite(self._new), self._suite(self._old)
        with new:
            self._reach(new, [mutant.new for mutant in every])
            now = new.judge([(one, one.new) for one in every], self._store(self._new, "new"), budget_s)
            self._times(new, now)
        with old:
            self._reach(old, [mutant.old for mutant in every])
            killed = [one for one in every if now[one.name]["outcome"] == "killed"]
            before = old.judge([(one, one.old) for one in killed], self._store(self._old, "old"), budget_s)
            # What survives the new suite is tried first on the tests that only the old one has.
            old.first(set(old.seconds) - set(new.seconds))
            rest = [one for one in every if one not in killed]
            before |= old.judge([(one, one.old) for one in rest], self._store(self._old, "old"), budget_s)
            self._times(old, before)
            doubtful = [one for one in every if _only_old(before, now, one)]
            for one in doubtful:
                if not old.repeat(one.old, before[one.name]["by"]):
                    before[one.name] = {**before[one.name], "outcome": "survived"}
        if doubtful := [one for one in doubtful if now[one.name]["outcome"] == "open" and _only_old(before, now, one)]:
            with self._suite(self._new) as new:
                self._reach(new, [mutant.new for mutant in every])
                now |= new.judge([(one, one.new) for one in doubtful], self._store(self._new, "new"), float("inf"))
        return {area: Found(pool, drawn, before, now) for area, (pool, drawn) in self._drawn.items()}

    def _suite(self, commit: str) -> Suite:
        scratch = Path(tempfile.gettempdir()) / f"gpu-shopper-mutants-{os.getuid()}-{commit}"
        return Suite(ROOT, commit, scratch, self._options.tests, self._options.workers, self._deadline)

    def _store(self, commit: str, kind: str) -> Store:
        return Store(KEPT / f"{commit}-{kind}-{self._key}.jsonl")

    def _reach(self, suite: Suite, changes: Sequence[Change]) -> None:
        places = watched(self._sources[suite.commit], changes)
        key = hashlib.sha256(" ".join(place.place for place in places).encode()).hexdigest()[:8]
        suite.reach(places, self._store(suite.commit, f"reach-{key}"))
        _say(f"{suite.commit}: {len(suite.seconds)} tests, {sum(suite.seconds.values()):.0f} s one after the other")
        for test in suite.failing:
            _say(f"  left out, because it fails without a mutant: {test}")

    def _times(self, suite: Suite, rows: Mapping[str, Row]) -> None:
        for area, (_, drawn) in self._drawn.items():
            mine = [rows[one.name] for one in drawn]
            took, used = (sum(row[key] for row in mine) / max(1, len(mine)) for key in ("took_s", "used_s"))
            left = sum(row["outcome"] == "open" for row in mine)
            _say(f"  {area}: a mutant takes {took:.2f} s, {used:.2f} s of them computing; {left} outlast the budget")


def _only_old(before: Mapping[str, Row], now: Mapping[str, Row], mutant: Mutant) -> bool:
    return (before[mutant.name]["outcome"], now[mutant.name]["outcome"] == "killed") == ("killed", False)


def main() -> int:
    """0 when nothing was lost, 1 when something was, 3 when the time was over first."""
    parser = argparse.ArgumentParser(description="Compare which mutants two commits' tests kill.")
    parser.add_argument("--old", required=True, help="the commit whose tests are the measure")
    parser.add_argument("--drawn", type=int, default=300, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--areas", nargs="+", choices=AREAS, default=AREAS)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the folders of tests that both suites run")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=75, help="what is recorded by then is kept; run again")
    parser.add_argument("--budget", type=float, default=10, help="seconds of tests for a mutant that none kills")
    try:
        found = Comparison(parser.parse_args()).run()
    except OutOfTimeError:
        _say("The time is over. Run it again: it goes on where it was.")
        return UNFINISHED
    except KeyboardInterrupt:
        _say("Interrupted. Run it again: it goes on where it was.")
        return UNFINISHED
    lines = table(found)
    (KEPT / "survivors.txt").write_text("".join(f"{line}\n" for line in survivors(found)))
    (KEPT / "table.txt").write_text("".join(f"{line}\n" for line in lines))
    _say("\n".join([*lines, f"What neither suite kills is in {(KEPT / 'survivors.txt').relative_to(ROOT)}."]))
    return 1 if any(one.lost for one in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
