"""Seeds that once failed stay, and the same seed gives the same history. `make simulate` plays new ones."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.simulation.play import play, quiet
from tests.scenarios.simulation.test_place import cleaned_up
from tests.support.databases import memory_folder

__all__ = ["cleaned_up"]

pytestmark = pytest.mark.usefixtures("cleaned_up")

#: A seed that restores an older copy.
RESTORED = 5050
#: Each shows something of its own: see the comment beside it. A seed's history changes with the steps of a process, so
#: what a seed has found is kept as a test of the service, too.
SEEDS = (
    4,  # A process is killed, and several clouds refuse, lose and delay calls.
    RESTORED,  # An older copy of the ledger is restored, and an operator adopts a machine that it lacks.
    4014,  # The previous release starts a moment after a kill, can't use the schema, and ends what is due.
)


@pytest.mark.quick
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stored_seed_keeps_every_invariant(seed: int, sqlite_template: Path, tmp_path: Path) -> None:
    with memory_folder() as folder:
        outcome = play(seed, sqlite_template, folder or tmp_path)
    _take_away_the_killed()
    assert not outcome.violations, "\n".join([*outcome.history, *outcome.violations])
    assert outcome.sessions
    assert outcome.kills


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [4])
def test_the_same_seed_gives_the_same_history(seed: int, sqlite_template: Path, tmp_path: Path) -> None:
    with memory_folder() as folder:
        one, other = (play(seed, sqlite_template, folder or tmp_path) for _ in range(2))
    _take_away_the_killed()
    assert one.digest == other.digest
    assert one.history == other.history


def test_a_process_of_its_own_gives_the_same_history(sqlite_template: Path, tmp_path: Path) -> None:
    """Nothing depends on what a process did before, on threads, or on the order of a set."""
    record = tmp_path / "seeds.jsonl"
    command = [sys.executable, "-m", "tests.scenarios.simulation", "--seeds", "1", "--from", str(RESTORED)]
    subprocess.run([*command, "--record", str(record)], check=True, capture_output=True)
    outcome = play(RESTORED, sqlite_template, tmp_path)
    _take_away_the_killed()
    assert json.loads(record.read_text())["digest"] == outcome.digest


def _take_away_the_killed() -> None:
    """What a killed process left open is taken away here, and not in another test."""
    with quiet():
        gc.collect()
