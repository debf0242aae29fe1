"""Ranking by estimates, against a published benchmark that no fit has seen."""

from __future__ import annotations

import pytest

from tests.bench.throughput_ranking import (
    AIM_REGRET,
    AIM_RIGHT,
    MODELS,
    TRUTH,
    by_rate,
    ranked,
    rates,
    report,
    score,
    thirty,
)


@pytest.mark.slow
def test_the_ranking_picks_the_cheapest_on_nearly_every_market() -> None:
    ours = score(ranked())
    assert ours.right >= AIM_RIGHT
    assert ours.regret <= AIM_REGRET


def test_the_rates_alone_are_nearly_as_good() -> None:
    alone = score(by_rate(rates()))
    assert alone.right >= AIM_RIGHT
    assert alone.regret <= AIM_REGRET


def test_three_models_on_ten_markets_each() -> None:
    found = thirty()
    assert found.markets == 30
    assert found.right >= 27
    assert found.regret <= AIM_REGRET
    assert all(set(truth) < set(TRUTH) for truth in MODELS.values())


def test_the_truth_itself_is_never_wrong() -> None:
    perfect = score(by_rate(TRUTH))
    assert (perfect.right, perfect.regret) == (perfect.markets, 0)


def test_price_alone_is_often_wrong() -> None:
    assert score(by_rate(dict.fromkeys(TRUTH, 1.0))).right < 100


def test_the_report_has_each_type_and_says_whether_the_aims_are_met() -> None:
    lines = list(report(5))
    assert len(lines) == len(TRUTH) + 6
    assert lines[-1].startswith("  aims (180 of 200, 2 %) ")
