"""The words of runs and comparisons in the `/gpu` language."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.grammar.job import LOOK_HOURS
from bot.rules.grammar.parser import ParsedCommand, parse
from bot.rules.jobs.facets.work import unsaid, workload, workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.plans.comparison import ComparisonQuestion
from bot.rules.policy.policy import Policy
from tests.rules.grammar.test_parser import args, error


def test_a_run_is_described_in_words_and_leaves_the_number_of_gpus_open() -> None:
    found = args("model=7B tokens=2B seq=2048 batch=512 precision=bf16 goal=24h", "plan")
    assert found.work == ("model=7B", "tokens=2B", "seq=2048", "batch=512", "precision=bf16", "goal=24h")
    assert (found.model, found.tokens, found.hours) == ("7B", 2 * 10**9, LOOK_HOURS)
    assert (found.gpu.count_min, found.gpu.count_max) == (1, Policy().max_gpus)
    said = workload(found.work)
    assert (said.total_params, said.tokens, said.goal_hours) == (7 * 10**9, 2 * 10**9, Decimal(24))
    assert args("model=7B tokens=2B 2x", "plan").gpu.count_max == 2
    assert args("4090 6h", "plan").work == ()


@pytest.mark.parametrize("size", ["7B", "7b", "1.5B", "30B-A3B"])
def test_the_size_of_a_model_needs_no_key(size: str) -> None:
    assert args(f"{size} tokens=2B", "plan").work == (f"model={size}", "tokens=2B")
    assert error(f"plan {size} model=8B").word == "model=8B"


def test_a_run_can_be_asked_for_without_hours_but_hours_that_were_said_win() -> None:
    assert args("4090 model=7B tokens=2B").work == ("model=7B", "tokens=2B")
    assert args("model=7B tokens=2B").gpu.names == ()
    assert args("4090 2h model=7B tokens=2B").work == ()
    assert args("4090 model=7B", "inventory").work == ()


@pytest.mark.parametrize(
    ("line", "word", "said"),
    [
        ("plan 4090", "", "Say what runs"),
        ("plan model=7B seq=2k seq=2k", "seq=2k", "said twice"),
        ("plan model=7B params=8B", "params=8B", "contradicts"),
        ("plan seq=", "seq=", "needs a value; write seq=2048"),
        ("plan heads=3 width=4096", "width=4096", "does not divide"),
        ("provision 4090 model=7B", "", "How many tokens are processed was not said"),
        ("provision 4090 seq=2048 tokens=2B", "", "The model's size was not said"),
        ("compare budget=lots", "budget=lots", "not an amount"),
        ("compare budget=1,2,3,4,5,6", "budget=1,2,3,4,5,6", "At most 5 budgets"),
        ("compare buffer=much", "buffer=much", "not a share"),
        ("compare buget=5", "buget=5", "Did you mean budget?"),
        ("compare budget", "budget", "needs a value"),
        ("compare hours=1 hours=2", "hours=2", "repeats"),
        ("compare $50 budget=60", "budget=60", "repeats"),
        ("compare success=0", "success=0", "success rate must be above 0"),
    ],
)
def test_what_is_wrong_with_a_run_or_a_comparison_is_said(line: str, word: str, said: str) -> None:
    found = error(line)
    assert found.word == word
    assert said in found.message


def test_a_comparison() -> None:
    plain = parse("compare")
    assert isinstance(plain, ParsedCommand)
    assert plain.question == ComparisonQuestion(Decimal(1))
    amounts = parse("compare $50,$1,000 hours=2")
    assert isinstance(amounts, ParsedCommand)
    assert amounts.question == ComparisonQuestion(Decimal(2), (Decimal(50), Decimal(1000)))
    found = parse("compare budget=$1,000,5000 hours=90m buffer=0.2 baseline=$3.67 success=80% value=$1,000")
    assert isinstance(found, ParsedCommand)
    assert found.question == ComparisonQuestion(
        Decimal("1.5"),
        (Decimal(1000), Decimal(5000)),
        Decimal("0.2"),
        Decimal("3.67"),
        Decimal("0.8"),
        Decimal(1000),
    )


def test_a_job_request_gives_its_run_back() -> None:
    asked = args("model=7B tokens=2B", "plan")
    assert workload_of(JobRequest.from_json(asked.to_json())) == workload(("model=7B", "tokens=2B"))
    assert workload_of(args("4090 2h")) is None
    assert unsaid(()) == ""
