"""The published predictions: equal to new ones where the measurements are at hand, and right in themselves always."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.rules.plans.predictions import MEANT, coverage, read, table
from providers.gpus.table import GPUS
from tests.bench.fitting.predictions import TARGET, predictions
from tests.bench.fitting.rows import of_tree
from tests.bench.throughput_data import VARIABLE, folder

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(VARIABLE not in os.environ, reason="the published measurements are not at hand")
def test_the_file_is_what_the_generator_writes() -> None:
    assert (ROOT / TARGET).read_text() == table(predictions(folder()))


def test_every_row_is_judged_by_its_own_numbers() -> None:
    rows = read((ROOT / TARGET).read_text())
    assert all(float(one.low) < float(one.predicted) < float(one.high) for one in rows)
    held = [float(one.low) <= float(one.measured) <= float(one.high) for one in rows]
    assert [one.inside == "yes" for one in rows] == held
    assert abs(sum(held) / len(held) - MEANT) < 0.1
    assert {one.gpu for one in rows} <= set(GPUS)
    assert all(one.source for one in rows)


def test_every_rate_of_the_tree_is_in_the_file_and_the_page_says_how_many_were_inside() -> None:
    rows = read((ROOT / TARGET).read_text())
    assert {one.source for one in of_tree()} <= {one.source for one in rows}
    said = " ".join((ROOT / "docs/estimates.md").read_text().split())
    assert coverage(rows) in said
