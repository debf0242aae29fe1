"""Many seeds: the same order with any number of processes, and a record with which an interrupted run continues."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.scenarios.simulation.batch import Played, played, recorded, those_left
from tests.scenarios.simulation.play import Outcome

pytestmark = pytest.mark.quick


def outcome_of(seed: int) -> Outcome:
    """Seed 3 breaks something."""
    return Outcome(seed, ["it broke"] if seed == 3 else [], f"d{seed}", [], kills=seed, sessions=2 * seed, cpu_s=0.5)


@pytest.mark.parametrize("workers", [1, 3])
def test_outcomes_come_in_the_order_of_their_seeds(workers: int) -> None:
    found = played(iter(range(1, 8)), outcome_of, workers=workers, until_s=None)
    assert [(one.seed, one.digest) for one in found] == [(n, f"d{n}") for n in range(1, 8)]


def fails_at_two(seed: int) -> Outcome:
    """Seed 2 raises an error."""
    if seed == 2:
        raise ValueError("no such row\nand more")
    return outcome_of(seed)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_breaks_its_seed_only(workers: int) -> None:
    one, two, _ = played(iter(range(1, 4)), fails_at_two, workers=workers, until_s=None)
    assert (one.violations, two.violations) == ([], ["nothing raises an error: ValueError: no such row"])
    assert any("fails_at_two" in line for line in two.journal)


@pytest.mark.parametrize("workers", [1, 2])
def test_no_seed_begins_after_the_time_that_was_given(workers: int) -> None:
    assert not list(played(those_left(1, None, []), outcome_of, workers=workers, until_s=time.monotonic()))


def test_a_run_goes_on_after_the_last_seed_of_its_record(tmp_path: Path) -> None:
    path = tmp_path / "record"
    assert recorded(path) == []
    kept = [Played.of(outcome_of(seed)) for seed in (1, 2, 3)]
    path.write_text("".join(one.line() for one in kept) + '{"seed": 4, "dig')  # It was killed as it wrote.
    assert recorded(path) == kept
    assert path.read_text().endswith("\n")
    assert kept[2].violations == ("it broke",)
    assert list(those_left(1, 5, kept)) == [4, 5]
    assert list(those_left(10, 2, kept)) == [10, 11]
    assert next(those_left(1, None, kept)) == 4
