"""Ranking by estimates, against a published benchmark that no fit has seen."""

from __future__ import annotations

from tests.bench.throughput_ranking import AIM_REGRET, AIM_RIGHT, TRUTH, rates, report, score


def test_the_cheapest_per_token_is_picked_on_nearly_every_market() -> None:
    ours = score(rates())
    assert ours.right >= AIM_RIGHT
    assert ours.regret <= AIM_REGRET
    assert list(report())[-1].endswith("met")


def test_the_truth_itself_is_never_wrong() -> None:
    perfect = score(TRUTH)
    assert (perfect.right, perfect.regret) == (perfect.markets, 0)


def test_price_alone_is_often_wrong() -> None:
    assert score(dict.fromkeys(TRUTH, 1.0)).right < 100
