"""A comparison with a model compares work; one with hours or a budget alone compares runs by the hour."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse


def read(line: str) -> ParsedCommand:
    found = parse(line)
    assert not isinstance(found, GrammarError), found.message
    return found


def test_a_model_compares_work_on_any_number_of_gpus() -> None:
    for line in ("compare model=7B tokens=2B", "compare 7B tokens=2B"):
        found = read(line)
        assert found.question is None
        assert found.job is not None
        assert found.job.work == ("model=7B", "tokens=2B")
        assert found.job.gpu.count_max == 16


def test_limits_of_a_job_and_the_words_of_a_run_belong_to_it() -> None:
    job = read("compare model=llama-3-8b type=serving clouds=vast max=$90").job
    assert job is not None
    assert job.work == ("model=llama-3-8b", "type=serving", "tokens=1B")
    assert (job.candidates, job.budget_cap_usd) == (("vast",), Decimal(90))


@pytest.mark.parametrize("line", ["compare", "compare $500 hours=1", "compare budget=500 buffer=10%"])
def test_hours_and_budgets_are_compared_as_before(line: str) -> None:
    found = read(line)
    assert found.job is None
    assert found.question is not None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("compare model=7B hours=3", "hours= compares runs by the hour; leave it out"),
        ("compare model=7B 3h", "Leave the time out"),
        ("compare model=7B success=80%", "success= compares runs by the hour"),
        ("compare tokens=2B", "write it as model=7B"),
        ("compare model=FLUX.1-dev images=1000", "write plan model="),
        ("compare model=nobody/knows", "The size of nobody/knows is not known here"),
        ("compare model=7B served-tokens=1B", "served-tokens= chooses a model for a budget"),
        ("compare model=7B gpu=nonsense", "is not a GPU that is known here"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_right(line: str, says: str) -> None:
    found = parse(line)
    assert isinstance(found, GrammarError)
    assert says in found.message
    assert found.example == "compare model=7B tokens=2B"
