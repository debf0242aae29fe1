"""A plan with a budget and no model is a question for the model; everything else is a plan as before."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.job import JobRequest
from bot.rules.market.sizing_question import SizingQuestion


def asked(line: str) -> SizingQuestion:
    found = parse(line)
    assert not isinstance(found, GrammarError), found.message
    assert found.sizing is not None
    assert found.job is None
    return found.sizing


def planned(line: str) -> JobRequest:
    found = parse(line)
    assert not isinstance(found, GrammarError), found.message
    assert found.sizing is None
    assert found.job is not None
    return found.job


def refused(line: str) -> str:
    found = parse(line)
    assert isinstance(found, GrammarError)
    return found.message


def test_a_budget_alone_asks_for_the_model_on_any_gpus() -> None:
    for line in ("plan budget=$500", "plan $500", "plan max=500"):
        found = asked(line)
        assert found.budget_usd == Decimal(500)
        assert (found.job.gpu.names, found.job.gpu.count_min, found.job.gpu.count_max) == ((), 1, 16)
        assert found.job.work == ("type=training",)


def test_limits_belong_to_the_question() -> None:
    found = asked("plan budget=$500 2xH100-SXM by=2d served-tokens=10B tokens=20B spot=any")
    assert (found.job.gpu.names, found.job.gpu.count_min, found.job.gpu.count_max) == (("H100-SXM",), 2, 2)
    assert (found.work.goal_hours, found.work.served_tokens) == (Decimal(48), 10**10)
    assert found.work.tokens == 20 * 10**9


def test_hours_without_a_machine_are_the_time_there_is() -> None:
    found = asked("plan budget=$500 hours=36")
    assert found.work.goal_hours == Decimal(36)
    assert found.job.hours == Decimal(1)
    assert asked("plan budget=$500 goal=36h").work == found.work


@pytest.mark.parametrize(
    "line",
    ["plan 4090 6h budget=$50", "plan memory=40GB+ hours=6 max=$50", "plan model=7B tokens=2B budget=$500"],
)
def test_a_machine_for_hours_and_a_model_are_plans_as_before(line: str) -> None:
    assert planned(line).budget_cap_usd


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plan budget=0", "must be above zero"),
        ("plan budget=-5", "cannot be negative"),
        ("plan budget=lots", "is not an amount of money"),
        ("plan budget=$500 served-tokens=0", "write 10B"),
        ("plan model=7B budget=$500 served-tokens=1B", "served-tokens= chooses a model for a budget"),
        ("plan served-tokens=1B", "write plan budget=$500 served-tokens=10B"),
        ("provision H100 model=7B tokens=1B served_tokens=1B", "served-tokens= chooses a model for a budget"),
        ("plan budget=$500 type=lora", "type=lora starts from a model, so name it: plan model=7B type=lora."),
        ("plan budget=$500 steps=10k", "write the data that you have as tokens=20B"),
        ("plan budget=$500 hours=4 by=3h", "keep one of the two"),
        ("plan clouds=vast", "budget=$500 alone asks which model that trains"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_right(line: str, says: str) -> None:
    assert says in refused(line)
