"""`python -m tests.scenarios.simulation --seeds 20 --from 1`: play seeds, and print how to play again what failed."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.scenarios.simulation.batch import Played, played, recorded, those_left
from tests.scenarios.simulation.play import CHECKED_EVERY, Outcome, play
from tests.support.databases import memory_folder, migrated_sqlite

PROGRAM = "python -m tests.scenarios.simulation"


def main(arguments: list[str]) -> int:
    """Play the seeds that are asked for. Returns 1 when one broke an invariant, of those in the record, too."""
    chosen = _parsed(arguments)
    until_s = time.monotonic() + 60 * chosen.minutes if chosen.minutes else None
    number = None if until_s else chosen.seeds
    _collect_seldom()
    done = [one for one in recorded(chosen.record) if one.seed >= chosen.first] if chosen.record else []
    seeds = those_left(chosen.first, number, done)
    with memory_folder() as shared, tempfile.TemporaryDirectory() as own:
        folder = shared or Path(own)
        (folder / "template").mkdir()
        every = 1 if chosen.every_step else CHECKED_EVERY
        one_seed = partial(play, migrated=migrated_sqlite(folder / "template"), folder=folder, every=every)
        for outcome in played(seeds, one_seed, workers=chosen.workers, until_s=until_s):
            _show(outcome, is_told=chosen.history)
            done.append(Played.of(outcome))
            if chosen.record:
                with chosen.record.open("a") as file:
                    file.write(done[-1].line())
            if outcome.violations and chosen.stop:
                break
    return _sum_up(done)


def _collect_seldom() -> None:
    """Look for garbage seldom, and not among what was imported: it is a twelfth of a seed otherwise."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to play")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--minutes", type=float, default=0, help="play as many seeds as fit instead")
    parser.add_argument("--workers", type=int, default=1, help="how many processes play at once")
    parser.add_argument("--record", type=Path, help="add a line of JSON for each seed, and go on after the last one")
    parser.add_argument("--every-step", action="store_true", help="check the invariants after every step (slow)")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that breaks an invariant")
    parser.add_argument("--history", action="store_true", help="print what happened")
    return parser.parse_args(arguments)


def _sum_up(done: list[Played]) -> int:
    broken = [one.seed for one in done if one.violations]
    instances, crashes = sum(one.instances for one in done), sum(one.crashes for one in done)
    sys.stdout.write(
        f"{len(done)} seeds, {instances} instances, {crashes} crashes, "
        f"{sum(one.cpu_s for one in done) / max(len(done), 1):.2f} CPU-s a seed; "
        f"{len(broken)} broke an invariant{': ' if broken else ''}{', '.join(map(str, broken))}\n"
    )
    return 1 if broken else 0


def _show(outcome: Outcome, *, is_told: bool) -> None:
    if is_told:
        sys.stdout.writelines(f"  {line}\n" for line in [*outcome.history, "The journal:", *outcome.journal])
    if is_told or outcome.violations:
        sys.stdout.write(
            f"seed {outcome.seed}: {outcome.digest}, {outcome.sessions} instances, {outcome.cpu_s:.2f} s\n"
        )
    for line in outcome.violations:
        sys.stdout.write(f"  {line}\n")
    if outcome.violations:
        sys.stdout.write(f"  again: {PROGRAM} --seeds 1 --from {outcome.seed} --history\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of words have the same order in every run only then.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 # Our own arguments.
    raise SystemExit(main(sys.argv[1:]))
