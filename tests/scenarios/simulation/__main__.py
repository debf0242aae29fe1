"""`python -m tests.scenarios.simulation --seeds 20 --from 1`: play seeds, and print how to play again what failed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.scenarios.simulation.play import CHECKED_EVERY, Outcome, play
from tests.support.databases import memory_folder, migrated_sqlite

PROGRAM = "python -m tests.scenarios.simulation"


def main(arguments: list[str]) -> int:
    """Play the seeds that are asked for. Returns 1 when one broke an invariant."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to play")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--minutes", type=float, default=0, help="play as many seeds as fit instead")
    parser.add_argument("--every-step", action="store_true", help="check the invariants after every step (slow)")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that breaks an invariant")
    parser.add_argument("--history", action="store_true", help="print what happened")
    chosen = parser.parse_args(arguments)
    every = 1 if chosen.every_step else CHECKED_EVERY
    until_s = time.monotonic() + 60 * chosen.minutes if chosen.minutes else None
    broken: list[Outcome] = []
    played, cpu_s, sessions, kills, seed = 0, 0.0, 0, 0, chosen.first
    with memory_folder() as shared, tempfile.TemporaryDirectory() as own:
        folder = shared or Path(own)
        (folder / "template").mkdir()
        migrated = migrated_sqlite(folder / "template")
        while time.monotonic() < until_s if until_s else played < chosen.seeds:
            outcome = play(seed, migrated, folder, every=every)
            _show(outcome, is_told=chosen.history)
            broken += [outcome] if outcome.violations else []
            played, seed, cpu_s = played + 1, seed + 1, cpu_s + outcome.cpu_s
            sessions, kills = sessions + outcome.sessions, kills + outcome.kills
            if broken and chosen.stop:
                break
    sys.stdout.write(
        f"{played} seeds, {sessions} instances, {kills} crashes, {cpu_s / max(played, 1):.2f} CPU-s a seed; "
        f"{len(broken)} broke an invariant{': ' if broken else ''}{', '.join(str(one.seed) for one in broken)}\n"
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
