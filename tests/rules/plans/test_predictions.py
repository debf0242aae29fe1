"""Predictions beside outcomes: nothing private in a row, what is inside a range, and the sentence about all."""

from __future__ import annotations

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.plans.predictions import COLUMNS, Prediction, coverage, read, table

RATES = (1000.0, 800.0, 1250.0)


def row(words: str, measured: float = 900, stack: str | None = None) -> Prediction:
    return Prediction.of(parse(words), "H100-SXM", 8, RATES, measured, date="2026-03-02", source="own run", stack=stack)


def test_a_row_has_the_run_in_numbers_and_says_whether_its_range_held() -> None:
    found = row("model=llama-3-8b seq=8192 batch=64 precision=bf16 stack=torchtitan")
    assert (found.model, found.method, found.precision) == ("llama-3-8b 8.03B 32x4096", "training", "bf16")
    assert (found.seq, found.batch, found.stack) == ("8192", "64", "torchtitan")
    assert (found.predicted, found.low, found.high, found.measured, found.inside) == (
        "1000", "800", "1250", "900", "yes",
    )  # fmt: skip
    assert found.error == pytest.approx(1 / 9)
    assert [row("model=7B", rate).inside for rate in (799.9, 800, 1250.4, 1251)] == ["no", "yes", "yes", "no"]


@pytest.mark.parametrize(
    ("words", "model", "stack", "batch"),
    [
        ("params=1.3B layers=24 width=2048 heads=16 stack=secret-name", "1.3B 24x2048", "other", "-"),
        ("tokens=2B", "-", "-", "-"),
        ("type=serving model=llama-2-7b concurrency=4", "llama-2-7b 6.74B 32x4096", "-", "4"),
    ],
)
def test_names_that_are_not_public_are_left_out(words: str, model: str, stack: str, batch: str) -> None:
    found = row(words)
    assert (found.model, found.stack, found.batch) == (model, stack, batch)


def test_a_stack_that_only_the_source_names_is_told() -> None:
    assert row("model=7B", stack="torchtitan").stack == "torchtitan"


def test_a_table_is_read_as_it_was_written() -> None:
    rows = [row("model=7B"), row("model=7B seq=2048", 12.345)]
    text = table(rows)
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert read(text) == rows


def test_the_coverage_counts_the_rows_inside_their_ranges() -> None:
    assert coverage([]) == "No run with a stated range is recorded yet."
    assert coverage([row("model=7B"), row("model=7B", 2000), row("model=7B", 1000)]) == (
        "2 of 3 runs (67%) were inside the stated range, which is meant to hold 80%. The median error was 11%."
    )
