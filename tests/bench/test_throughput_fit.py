"""The stored fit: a new one and its aims where the published measurements are at hand, and its rows always."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.rules.sizing import throughput_fitted as fitted
from tests.bench.fitting.rows import of_tree
from tests.bench.throughput_accept import report
from tests.bench.throughput_data import at_hand, folder
from tests.bench.throughput_fit import TARGET, written

ROOT = Path(__file__).parents[2]


needs_data = pytest.mark.skipif(not at_hand(), reason="the published measurements are not at hand")


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_data
def test_the_stored_fit_is_a_new_fit() -> None:
    assert (ROOT / TARGET).read_text() == written(folder())


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_data
def test_every_aim_is_met() -> None:
    lines = list(report(folder()))
    assert lines[-1] == "  aims met", "\n".join(lines)


def test_every_row_can_be_read_and_is_cited() -> None:
    rows = of_tree()
    assert len(rows) >= 130
    assert all(row.source.startswith("https://") for row in rows)
    assert all(row.tokens_s > 0 and 2023 <= row.year <= 2026 for row in rows)
    assert {row.gpu.name for row in rows} <= fitted.GPUS
    known = {*fitted.TRAINING_STACKS, *fitted.DECODING_STACKS}
    assert {row.stack for row in rows} <= known


@pytest.mark.parametrize("group", ["LoRA/QLoRA", "MoE train", "new/consumer GPU train", "decode batch 1"])
def test_every_group_has_ten_rows_or_more(group: str) -> None:
    assert sum(row.group == group for row in of_tree()) >= 10
