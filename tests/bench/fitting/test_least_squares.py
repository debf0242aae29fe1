"""The fit behind the throughput table, on problems with a known answer."""

from __future__ import annotations

import pytest

from tests.bench.fitting.least_squares import non_negative, relative

ROWS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]


def test_an_exact_answer_is_found() -> None:
    targets = [2.0, 3.0, 5.0, 7.0]
    assert non_negative(ROWS, targets, 0.0) == pytest.approx([2, 3], rel=1e-6)
    assert relative(ROWS, targets, 0.0) == pytest.approx([2, 3], rel=1e-6)


def test_nothing_becomes_negative() -> None:
    assert non_negative(ROWS, [2.0, -3.0, -1.0, 1.0], 0.0)[1] == 0


def test_the_ridge_pulls_towards_zero() -> None:
    assert sum(non_negative(ROWS, [2.0, 3.0, 5.0, 7.0], 10.0)) < 5


def test_columns_of_very_different_size_are_treated_alike() -> None:
    scaled = [[left * 1e-12, right * 1e9] for left, right in ROWS]
    assert relative(scaled, [2.0, 3.0, 5.0, 7.0], 0.0) == pytest.approx([2e12, 3e-9], rel=1e-6)


def test_a_column_of_zeros_gets_nothing() -> None:
    assert relative([[1.0, 0.0], [2.0, 0.0]], [3.0, 6.0], 0.0) == pytest.approx([3, 0])
