"""Partial pooling, on problems with a known answer."""

from __future__ import annotations

import pytest

from tests.bench.fitting.pooled import Prior, Row, pool, quantile

PRIOR = Prior(effect=1.0, group=1.0, noise=0.1, own={"any": 10.0})


def rows(group: str, target: float, count: int) -> list[Row]:
    return [Row({"any": 1.0}, group, target)] * count


def test_groups_with_many_rows_stand_on_their_own() -> None:
    found = pool([*rows("a", 1.0, 50), *rows("b", -1.0, 50)], ["any"], PRIOR)
    assert found.mean({"any": 1.0}, "a") == pytest.approx(1.0, abs=0.02)
    assert found.mean({"any": 1.0}, "b") == pytest.approx(-1.0, abs=0.02)


def test_an_unknown_group_is_the_mean_of_groups_not_of_rows() -> None:
    found = pool([*rows("a", 1.0, 50), *rows("b", -1.0, 5)], ["any"], PRIOR)
    assert found.mean({"any": 1.0}, "c") == found.mean({"any": 1.0}) == pytest.approx(0.0, abs=0.05)


def test_few_rows_are_pulled_to_the_mean() -> None:
    narrow = Prior(effect=1.0, group=0.1, noise=0.5, own={"any": 10.0})
    found = pool([*rows("a", 0.0, 50), *rows("b", 0.0, 50), *rows("c", 1.0, 1)], ["any"], narrow)
    assert 0 < found.mean({"any": 1.0}, "c") < 0.2


def test_a_feature_is_found_across_groups() -> None:
    many = [
        Row({"any": 1.0, "slow": float(slow)}, group, base - 0.5 * slow)
        for group, base in (("a", 0.2), ("b", -0.2), ("c", 0.0))
        for slow in (0, 1)
        for _ in range(20)
    ]
    assert pool(many, ["any", "slow"], PRIOR).effects["slow"] == pytest.approx(-0.5, abs=0.02)


def test_one_row_far_away_hardly_counts() -> None:
    found = pool([*rows("a", 0.0, 20), Row({"any": 1.0}, "a", 5.0)], ["any"], PRIOR)
    assert found.mean({"any": 1.0}, "a") == pytest.approx(0.0, abs=0.02)


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([0.0, 1.0, 2.0, 3.0, 4.0], 0.8) == pytest.approx(3.2)
