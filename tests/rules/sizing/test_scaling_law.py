"""The scaling law: published points, and what every optimum must keep to."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.sizing import scaling_law
from bot.rules.sizing.scaling_law import (
    LAW,
    ScalingLaw,
    SizedRun,
    beyond_fit,
    compute_optimum,
    lifetime_compute_optimum,
    lifetime_flops,
    lifetime_optimum,
)

CHINCHILLA_FLOPS = 5.76e23
#: The coefficients that arXiv:2401.00448 used for its figures, those of arXiv:2203.15556.
ORIGINAL = ScalingLaw(1.69, 406.4, 0.336, 410.7, 0.283)

FLOPS = st.floats(15, 28).map(lambda power: 10**power)
SERVED = st.floats(6, 15).map(lambda power: 10**power)


def test_chinchillas_budget_gives_chinchilla() -> None:
    found = compute_optimum(CHINCHILLA_FLOPS)
    assert 65e9 < found.params < 80e9
    assert 1.2e12 < found.tokens < 1.5e12
    assert 1.9 < found.loss < 2.05


def test_about_twenty_tokens_per_parameter() -> None:
    for power in range(20, 26):
        found = compute_optimum(10.0**power)
        assert 16 < found.tokens / found.params < 24


def test_the_size_grows_as_the_refit_says() -> None:
    """arXiv:2404.10102 gives 0.5126 for the exponent of the size."""
    ratio = compute_optimum(1e22).params / compute_optimum(1e21).params
    assert math.log10(ratio) == pytest.approx(0.5126, abs=1e-4)


def test_a_smaller_model_saves_what_the_inference_paper_says() -> None:
    """A 13B model that serves 2T tokens: a 7B model of the same loss saves 1.7e22 FLOPs, 17 % (arXiv:2401.00448)."""
    flops = 1e20
    while compute_optimum(flops, ORIGINAL).params < 13e9:
        flops *= 1.001
    large = compute_optimum(flops, ORIGINAL)
    small = SizedRun(7e9, ORIGINAL.tokens_for(7e9, large.loss), large.loss)
    before, after = lifetime_flops(large, 2e12), lifetime_flops(small, 2e12)
    assert before - after == pytest.approx(1.7e22, rel=0.01)
    assert 1 - after / before == pytest.approx(0.17, abs=0.005)
    best = lifetime_optimum(large.loss, 2e12, ORIGINAL)
    assert best.params == pytest.approx(7e9, rel=0.01)
    assert lifetime_flops(best, 2e12) <= after


@given(FLOPS)
def test_the_closed_form_is_the_numeric_minimum(flops: float) -> None:
    found = compute_optimum(flops)
    assert found.training_flops == pytest.approx(flops)
    searched = math.exp(
        scaling_law._minimum(lambda size: LAW.loss(math.exp(size), flops / 6 / math.exp(size)), 0, math.log(flops))
    )
    assert searched == pytest.approx(found.params, rel=1e-4)


@given(FLOPS, st.floats(0.3, 3).filter(lambda factor: abs(factor - 1) > 0.01))
def test_no_neighbour_beats_the_optimum(flops: float, factor: float) -> None:
    found = compute_optimum(flops)
    assert LAW.loss(found.params * factor, found.tokens / factor) > found.loss


@given(FLOPS, st.floats(1.01, 100))
def test_more_compute_is_a_larger_model_on_more_tokens_and_a_lower_loss(flops: float, factor: float) -> None:
    less, more = compute_optimum(flops), compute_optimum(flops * factor)
    assert more.params > less.params
    assert more.tokens > less.tokens
    assert more.loss < less.loss


@given(FLOPS, SERVED)
def test_serving_asks_for_a_smaller_model_and_longer_training(flops: float, served: float) -> None:
    plain = compute_optimum(flops)
    aware = lifetime_optimum(plain.loss, served)
    assert aware.params <= plain.params * 1.0001
    assert aware.tokens >= plain.tokens * 0.9999
    assert lifetime_flops(aware, served) <= lifetime_flops(plain, served) * 1.000001
    for factor in (0.95, 1.05):
        other = aware.params * factor
        tokens = LAW.tokens_for(other, plain.loss)
        assert lifetime_flops(SizedRun(other, tokens, plain.loss), served) >= lifetime_flops(aware, served) * 0.999999


@given(FLOPS, SERVED)
def test_the_budget_for_both_is_the_same_optimum(flops: float, served: float) -> None:
    """The least loss of a lifetime's compute has that compute as the least for its loss."""
    found = lifetime_compute_optimum(flops, served)
    assert lifetime_flops(found, served) == pytest.approx(flops, rel=1e-6)
    assert lifetime_flops(lifetime_optimum(found.loss, served), served) == pytest.approx(flops, rel=1e-3)


def test_without_serving_both_are_the_compute_optimum() -> None:
    plain = compute_optimum(1e21)
    assert lifetime_compute_optimum(1e21, 0) == plain
    assert lifetime_optimum(plain.loss, 0).params == pytest.approx(plain.params, rel=1e-4)


def test_a_loss_that_a_size_cannot_reach_takes_endless_tokens() -> None:
    assert LAW.tokens_for(1e9, LAW.floor) == math.inf
    assert LAW.tokens_for(1e9, LAW.floor + 482.01 / 1e9**0.3478 + 1e-200) == math.inf
    assert LAW.loss(1e9, LAW.tokens_for(1e9, 2.6)) == pytest.approx(2.6)


@pytest.mark.parametrize(
    ("params", "tokens", "says"),
    [
        (1e9, 2e10, ()),
        (20e6, 2e10, ("The size is below",)),
        (70e9, 1.4e12, ("The size is above", "The tokens are above")),
        (1e9, 1e9, ("The tokens are below",)),
    ],
)
def test_what_lies_outside_of_the_fit_is_said(params: float, tokens: float, says: tuple[str, ...]) -> None:
    found = beyond_fit(params, tokens)
    assert len(found) == len(says)
    assert all(sentence.startswith(begin) for sentence, begin in zip(found, says, strict=True))
