"""Seeds that once failed stay, and the same seed gives the same history. `make simulate` plays new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.simulation.play import play
from tests.support.databases import memory_folder

#: Each shows something of its own: see the comment beside it.
SEEDS = (
    4,  # A process is killed, and several clouds refuse, lose and delay calls.
    140,  # A process starts on a machine whose clock is an hour ahead.
    786,  # A process starts on a machine whose clock is a year ahead, and would book a year.
    494,  # An hour completes while a cloud takes no order to end.
    572,  # An instance fails while its cloud is not listed, and its end is ordered meanwhile.
)


@pytest.mark.quick
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stored_seed_keeps_every_invariant(seed: int, sqlite_template: Path, tmp_path: Path) -> None:
    with memory_folder() as folder:
        outcome = play(seed, sqlite_template, folder or tmp_path)
    assert not outcome.violations, "\n".join([*outcome.history, *outcome.violations])
    assert outcome.sessions
    assert outcome.kills


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [4])
def test_the_same_seed_gives_the_same_history(seed: int, sqlite_template: Path, tmp_path: Path) -> None:
    with memory_folder() as folder:
        one, other = (play(seed, sqlite_template, folder or tmp_path) for _ in range(2))
    assert one.digest == other.digest
    assert one.history == other.history
