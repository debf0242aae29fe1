"""`nodes=2`: how many machines work as one set."""

from __future__ import annotations

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse


@pytest.mark.parametrize("word", ["nodes=3", "machines=3"])
def test_a_set_is_requested_by_one_word(word: str) -> None:
    command = parse(f"provision 8xH100 6h {word}")
    assert isinstance(command, ParsedCommand)
    assert command.job is not None
    assert (command.job.nodes, command.job.gpu.count_min) == (3, 8)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("provision 8xH100 6h nodes=many", "“nodes=many” is not a number of machines"),
        ("provision 8xH100 6h nodes=5", "A set has 2 to 4 machines, and not 5."),
        ("provision model=7B tokens=2B nodes=2", "can't be estimated here"),
        ("plan model=7B tokens=2B nodes=2", "can't be estimated here"),
    ],
)
def test_what_is_no_set_is_refused_before_a_request_exists(line: str, said: str) -> None:
    error = parse(line)
    assert isinstance(error, GrammarError)
    assert said.replace("nodes=many", "many") in error.message
