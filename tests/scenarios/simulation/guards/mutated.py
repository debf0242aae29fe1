"""`python -m tests.scenarios.simulation.guards.mutated`: remove each guard in turn, and say what notices it.

A guard is noticed by its test, which fails without it, or by its stored seed, which breaks an invariant.
`NUMBER --seeds 20` plays seeds without one guard and exits with 1 when one notices it; `NUMBER --test` runs its test
without it.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import CodeType, ModuleType

import pytest

from tests.scenarios.simulation.guards.catalog import GUARDS
from tests.scenarios.simulation.guards.guard import Edit, Guard

PROGRAM = "tests.scenarios.simulation.guards.mutated"
#: The options of a test's run: slow ones too, on one database, without a cache and without other processes.
OPTIONS = ("-q", "-x", "--all", "--database", "sqlite", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore")


class EditedLoader(importlib.machinery.SourceFileLoader):
    """Load a module from its file, with some edits."""

    edits: tuple[Edit, ...] = ()

    def get_code(self, fullname: str) -> CodeType:
        """Compile the edited text, and leave the compiled file beside the module alone."""
        path = self.get_filename(fullname)
        text = self.get_data(path).decode()
        for edit in self.edits:
            text = edit.made_in(text)
        code: CodeType = compile(text, path, "exec", dont_inherit=True)
        return code


class EditedModules(importlib.abc.MetaPathFinder):
    """Find the modules of one guard's edits before the ordinary finders do."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = edits

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own spec with a loader that edits; None for every other module."""
        mine = tuple(edit for edit in self._edits if edit.module == fullname)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if mine else None
        if spec is None or spec.origin is None:
            return None
        spec.loader = EditedLoader(fullname, spec.origin)
        spec.loader.edits = mine
        return spec


def play(guard: Guard, arguments: Sequence[str]) -> None:
    """Play seeds in this process without the guard, and end it. It must not have imported the product yet."""
    sys.meta_path.insert(0, EditedModules(guard.edits))
    # The edits must be found first, so the simulation is imported only now.
    sys.argv = [sys.argv[0], *arguments, "--stop"]
    runpy.run_module("tests.scenarios.simulation", run_name="__main__", alter_sys=True)


def run_test(guard: Guard) -> int:
    """Run the guard's test in this process without the guard, and return how pytest exits."""
    sys.meta_path.insert(0, EditedModules(guard.edits))
    return int(pytest.main([guard.test, *OPTIONS]))


def noticed_by(number: int, first: int, seeds: int) -> int | None:
    """Play seeds in a process of its own, and return the first that notices the missing guard; None when none does."""
    done = _apart(str(number), "--from", str(first), "--seeds", str(seeds))
    found = re.search(r"broke an invariant: (\d+)", done)
    return int(found.group(1)) if found else None


def fails_without(number: int) -> bool:
    """Whether the guard's test, in a process of its own, fails while the guard is missing."""
    # An invariant that is broken after the test counts as an error of its end.
    found = re.search(r"\d+ (failed|errors?)(,| in )", _apart(str(number), "--test"))
    return found is not None


def _apart(*arguments: str) -> str:
    command = [sys.executable, "-m", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Do what is asked for. Returns 1 when a guard is missed by everything (all), or when it is noticed (one)."""
    parser = argparse.ArgumentParser(prog=f"python -m {PROGRAM}", description=__doc__)
    parser.add_argument("number", type=int, nargs="?", help="which guard, counted from 0")
    parser.add_argument("--test", action="store_true", help="run its test instead of seeds")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to play")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many guards at once")
    chosen = parser.parse_args(arguments)
    if chosen.number is not None and chosen.test:
        return run_test(GUARDS[chosen.number])
    if chosen.number is not None:
        play(GUARDS[chosen.number], ["--seeds", str(chosen.seeds), "--from", str(chosen.first)])
    missed = 0
    with ThreadPoolExecutor(chosen.workers) as pool:  # Each guard has a process of its own.
        proofs = pool.map(partial(_proof, first=chosen.first, seeds=chosen.seeds), range(len(GUARDS)))
        for number, (guard, by) in enumerate(zip(GUARDS, proofs, strict=True)):
            missed += not by
            sys.stdout.write(f"{number:3} {guard.law}: {guard.name}: {f'noticed by {by}' if by else 'missed'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(GUARDS) - missed} of {len(GUARDS)} guards are noticed when they are missing\n")
    return 1 if missed else 0


def _proof(number: int, first: int, seeds: int) -> str:
    """Return what notices that a guard is missing: its test, its seed, or one of so many seeds; "" for nothing."""
    guard = GUARDS[number]
    if guard.test and fails_without(number):
        return guard.test
    seed = noticed_by(number, first if guard.seed is None else guard.seed, seeds if guard.seed is None else 1)
    return f"seed {seed}" if seed is not None else ""


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of words have the same order in every run only then.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 # Our own arguments.
    raise SystemExit(main(sys.argv[1:]))
