"""Comparison: the figures that people worked out by hand, and what must hold for every price."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.plans.comparison import (
    PLAIN_BUDGETS,
    Comparison,
    ComparisonQuestion,
    PricedGpu,
    cheapest,
    compare,
    per_run,
    run_cost,
)
from bot.rules.plans.comparison_text import cheaper, elsewhere, markdown, to_json
from bot.rules.plans.environments import ENVIRONMENTS, outdated
from bot.rules.values.price_age import FRESH
from providers.gpus.table import GPUS
from tests.rules.builders import OFFERS, offer

ONE = ComparisonQuestion(hours=Decimal(1))
TWO = ComparisonQuestion(hours=Decimal(2))

#: Spot and on-demand dollars per hour that a team compared on 2026-01-16.
PRICED = (
    PricedGpu("RTX4090", 24, Decimal("0.44"), Decimal("0.69"), "runpod", "runpod"),
    PricedGpu("A100-SXM-40GB", 40, Decimal("1.39"), Decimal("1.99"), "runpod", "runpod"),
    PricedGpu("A100-SXM-80GB", 80, Decimal("1.89"), Decimal("2.49"), "runpod", "runpod"),
    PricedGpu("A6000", 48, Decimal("0.79"), Decimal("1.19"), "runpod", "runpod"),
)


@pytest.mark.parametrize(
    ("price", "cost", "runs"),
    [
        ("0.44", "0.48", 1041),
        ("1.39", "1.53", 326),
        ("1.89", "2.08", 240),
        ("0.79", "0.87", 574),
        ("0.69", "0.76", 657),
        ("1.99", "2.19", 228),
        ("2.49", "2.74", 182),
        ("1.19", "1.31", 381),
    ],
)
def test_one_hour_by_hand(price: str, cost: str, runs: int) -> None:
    found = per_run(Decimal(price), ONE)
    assert found.cost_usd == Decimal(cost)
    assert found.budgets[0].budget_usd == 500
    assert found.budgets[0].runs == runs
    assert found.budgets[0].training_hours == runs


@pytest.mark.parametrize(("price", "cost", "runs"), [("0.44", "0.97", 515), ("1.39", "3.06", 163)])
def test_two_hours_by_hand(price: str, cost: str, runs: int) -> None:
    found = per_run(Decimal(price), TWO)
    assert found.cost_usd == Decimal(cost)
    assert found.budgets[0].runs == runs
    assert found.budgets[0].training_hours == 2 * runs


def test_a_larger_budget_is_its_own_line() -> None:
    assert [line.runs for line in per_run(Decimal("1.39"), ONE).budgets] == [326, 3267]


def test_what_a_success_is_worth_by_hand() -> None:
    found = per_run(Decimal("1.39"), replace(ONE, success_rate=Decimal("0.8"), value_usd=Decimal(1000)))
    assert found.per_success_usd == Decimal("1.91")
    assert found.budgets[0].successes == 261
    assert found.roi_percent is not None
    assert round(found.roi_percent) == 52_256
    assert found.budgets[0].net_usd == 260_500


def test_savings_are_measured_against_a_baseline() -> None:
    question = replace(ONE, baseline_usd_h=Decimal("1.99"))
    assert per_run(Decimal("1.39"), question).savings_percent == Decimal("30.1")
    assert per_run(Decimal("1.99"), question).savings_percent == 0
    assert per_run(Decimal("2.49"), question).savings_percent == Decimal("-25.1")


def test_a_success_without_a_value_has_no_return() -> None:
    found = per_run(Decimal("1.39"), replace(ONE, success_rate=Decimal("0.8")))
    assert found.per_success_usd == Decimal("1.91")
    assert found.roi_percent is None
    assert found.budgets[0].net_usd is None
    assert per_run(Decimal("1.39"), replace(ONE, value_usd=Decimal(1000))).roi_percent is None


def test_next_to_nothing_costs_a_cent() -> None:
    assert run_cost(Decimal("0.0001"), ONE) == Decimal("0.01")


def test_the_cheapest_run_comes_first() -> None:
    found = compare(PRICED, ONE)
    assert [row.option.gpu for row in found.clouds] == ["RTX4090", "A6000", "A100-SXM-40GB", "A100-SXM-80GB"]
    assert found.question.budgets_usd == PLAIN_BUDGETS
    assert found.notes == ()


@pytest.mark.parametrize("price", [None, Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("Infinity")])
def test_bad_prices_never_win(price: Decimal | None) -> None:
    found = compare([*PRICED, PricedGpu("H100-SXM", 80, price, price)], ONE)
    assert "H100-SXM" not in [row.option.gpu for row in found.clouds]
    assert found.notes == ("1 GPU skipped: no valid price.",)
    half = compare([PricedGpu("H100-SXM", 80, price, Decimal(3))], ONE)
    assert half.clouds[0].spot is None
    assert half.clouds[0].on_demand is not None


def test_what_cannot_be_rented_stands_beside() -> None:
    found = compare(PRICED, ONE)
    names = {row.option.on_demand_where for row in found.elsewhere}
    assert names >= {
        "Hugging Face Spaces",
        "Hugging Face AutoTrain",
        "Google Colab Pro+",
        "AWS SageMaker",
        "Azure ML",
        "Kaggle",
    }
    kaggle = next(row for row in found.elsewhere if row.option.on_demand_where == "Kaggle")
    assert (kaggle.spot, kaggle.on_demand) == (None, None)


def test_every_environment_says_where_and_when() -> None:
    for one in ENVIRONMENTS:
        assert one.source
        assert one.pros
        assert one.cons
        assert one.verdict.endswith(".")
        assert one.gpu in GPUS
        assert one.memory_gb == GPUS[one.gpu].memory_gb
        assert one.price_usd_h is not None or one.quota


@pytest.mark.parametrize(("units", "price"), [("13.08", "1.31"), ("1.96", "0.20")])
def test_units_become_dollars_by_hand(units: str, price: str) -> None:
    """$49.99 buys 500 compute units; the table says how many an hour takes."""
    assert (Decimal("49.99") / 500 * Decimal(units)).quantize(Decimal("0.01")) == Decimal(price)
    assert any(one.price_usd_h == Decimal(price) and units in one.note for one in ENVIRONMENTS)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hours": Decimal(0)}, "hours of a run"),
        ({"hours": Decimal("NaN")}, "hours of a run"),
        ({"budgets_usd": ()}, "A budget must be above"),
        ({"budgets_usd": (Decimal(-5),)}, "A budget must be above"),
        ({"buffer": Decimal(11)}, "The buffer must lie"),
        ({"success_rate": Decimal(0)}, "The success rate must be"),
        ({"success_rate": Decimal("1.1")}, "The success rate must be"),
        ({"value_usd": Decimal(-1)}, "The value of a success"),
    ],
)
def test_impossible_questions_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        compare(PRICED, replace(ONE, **changes))  # type: ignore[arg-type]


# ── from offers ──────────────────────────────────────────────────────────────────────────────────


def test_the_cheapest_place_per_gpu() -> None:
    found = cheapest(
        [
            offer("1", price_usd_h=Decimal("0.50")),
            offer("2", price_usd_h=Decimal("0.80"), gpu_count=2, cloud="runpod"),
            offer("3", price_usd_h=Decimal("0.20"), spot=True),
            offer("4", price_usd_h=Decimal(0)),
            offer("5", price_usd_h=None),
            offer("6", price_usd_h=Decimal("0.01"), gpu_count=0),
            offer("7", price_usd_h=Decimal("0.01"), cloud="kaggle"),
            offer("8", gpu="NEW", memory_gb=Decimal("23.6"), price_usd_h=Decimal(1)),
            offer("9", gpu="A6000", price_usd_h=Decimal(1), spot=True),
        ],
        free=frozenset(["kaggle"]),
    )
    assert found == (
        PricedGpu("A6000", 48, Decimal(1), None, "vast", ""),
        PricedGpu("NEW", 23, None, Decimal(1), "", "vast"),
        PricedGpu("RTX4090", 24, Decimal("0.20"), Decimal("0.40"), "vast", "runpod"),
    )


@given(st.lists(OFFERS, max_size=20))
def test_no_offer_is_cheaper_than_the_cheapest(offers: list[object]) -> None:
    priced = {option.gpu: option for option in cheapest(offers)}  # type: ignore[arg-type]
    for one in offers:
        each = one.price_usd_h / one.gpu_count  # type: ignore[attr-defined]
        best = priced[one.gpu].spot_usd_h if one.spot else priced[one.gpu].on_demand_usd_h  # type: ignore[attr-defined]
        assert best is not None
        assert best <= each


# ── pages ────────────────────────────────────────────────────────────────────────────────────────

FULL = replace(ONE, baseline_usd_h=Decimal("1.39"), success_rate=Decimal("0.8"), value_usd=Decimal(1000))


def test_the_page_has_the_table_that_people_print() -> None:
    page = markdown(compare(PRICED, ONE))
    assert "| GPU | VRAM | Spot $/Run | Spot Runs | On-Demand $/Run | On-Demand Runs | Training hours |" in page
    assert "| RTX4090 | 24GB | $0.48 | 1,041 | $0.76 | 657 | 1,041 |" in page
    assert "| A100-SXM-40GB | 40GB | $1.53 | 3,267 | $2.19 | 2,283 | 3,267 |" in page
    assert "## $5,000.00" in page
    assert "### Google Colab Pro+" in page
    assert "| T4 | 16GB | Kaggle (30 GPU hours a week, no dollars) | - | - | - | 2026-11-21 |" in page


def test_the_page_has_what_was_asked_for() -> None:
    page = markdown(compare([*PRICED, PricedGpu("T4", 16, None, Decimal(0))], FULL))
    assert "| Training hours | Savings | $/Success | Successes | Return | Net |" in page
    row = "| A100-SXM-40GB | 40GB | $1.53 | 326 | $2.19 | 228 | 326 | 0.0% | $1.91 | 261 | 52,256% | $260,500.00 |"
    assert row in page
    assert "1 GPU skipped" in page
    only = markdown(compare([PricedGpu("T4", 16, None, Decimal(1))], replace(FULL, value_usd=None), environments=()))
    assert "| T4 | 16GB | - | - | $1.10 | 454 |" in only
    assert "Return" not in only
    assert "cannot be rented" not in only


def test_lines_that_are_something_else_are_refused() -> None:
    row = compare(PRICED, ONE).clouds[0]
    with pytest.raises(ValueError, match="is not an environment"):
        elsewhere(row)
    assert cheaper(row) is row.spot


def test_json_has_every_figure_without_floats() -> None:
    found = to_json(compare(PRICED, FULL))
    assert json.loads(json.dumps(found)) == found
    spot = found["clouds"][2]["spot"]
    assert spot["cost_usd"] == "1.53"
    assert spot["budgets"][0] == {
        "budget_usd": "500",
        "runs": 326,
        "training_hours": "326",
        "successes": 261,
        "net_usd": "260500",
    }
    assert found["elsewhere"][0]["option"]["environment"]["as_of"] == "2026-07-21"
    assert found["question"]["buffer"] == "0.10"


# ── properties ───────────────────────────────────────────────────────────────────────────────────

PRICES = st.decimals(Decimal("0.0001"), 100, places=4)
QUESTIONS = st.builds(
    ComparisonQuestion,
    hours=st.decimals(Decimal("0.02"), 720, places=2),
    budgets_usd=st.lists(st.decimals(1, 10**6, places=2), min_size=1, max_size=3).map(tuple),
    buffer=st.decimals(0, 2, places=2),
    baseline_usd_h=st.none() | PRICES,
    success_rate=st.none() | st.decimals(Decimal("0.01"), 1, places=2),
    value_usd=st.none() | st.decimals(0, 10**6, places=2),
)


@given(PRICES, QUESTIONS)
def test_runs_never_overspend_and_one_more_would(price: Decimal, question: ComparisonQuestion) -> None:
    found = per_run(price, question)
    for line in found.budgets:
        assert line.runs * found.cost_usd <= line.budget_usd < (line.runs + 1) * found.cost_usd
        assert line.successes is None or 0 <= line.successes <= line.runs


@given(PRICES, PRICES, QUESTIONS)
def test_a_higher_price_never_buys_more(one: Decimal, other: Decimal, question: ComparisonQuestion) -> None:
    low, high = sorted([one, other])
    cheap, dear = per_run(low, question), per_run(high, question)
    assert cheap.cost_usd <= dear.cost_usd
    assert all(less.runs >= more.runs for less, more in zip(cheap.budgets, dear.budgets, strict=True))


@given(st.lists(PRICES, max_size=6), QUESTIONS)
def test_every_table_can_be_shown(prices: list[Decimal], question: ComparisonQuestion) -> None:
    found = compare([PricedGpu(f"GPU{n}", 24, price, None) for n, price in enumerate(prices)], question)
    assert isinstance(found, Comparison)
    assert markdown(found).startswith("# Environment options\n")
    assert json.dumps(to_json(found))
    costs = [cheaper(row).cost_usd for row in found.clouds]
    assert costs == sorted(costs)


def test_prices_of_environments_are_named_when_they_are_old_and_a_spot_price_is_shown() -> None:
    (azure,) = (one for one in ENVIRONMENTS if one.name == "Azure ML")
    assert outdated([azure], azure.as_of + FRESH) == ""
    said = outdated(ENVIRONMENTS, azure.as_of + FRESH + timedelta(days=1))
    assert said == "Prices older than 180 days, to be checked at their sources: Azure ML, Google Colab Pro+."
    assert outdated([replace(azure, price_usd_h=None)], date(2030, 1, 1)) == ""
    (row,) = compare([], ONE, [azure]).elsewhere
    assert elsewhere(row)[3] == "$3.67/h (spot $1.47/h)"
