"""`/gpu migrate`: an id, and where its run moves."""

from __future__ import annotations

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse

ID = "06eavj"


@pytest.mark.parametrize(
    ("line", "to"),
    [
        (f"migrate {ID}", ""),
        (f"migrate {ID} cheaper", "cheaper"),
        (f"migrate {ID} to lambda", "lambda"),
        (f"migrate {ID} TO vast", "vast"),
    ],
)
def test_where_a_run_moves_may_be_said(line: str, to: str) -> None:
    found = parse(line)
    assert isinstance(found, ParsedCommand)
    assert (found.target, found.text) == (ID, to)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"migrate {ID} to", "Say where to, as in"),
        (f"migrate {ID} vast lambda", "migrate takes one id, and one offer, one cloud or cheaper."),
    ],
)
def test_a_wrong_place_is_refused(line: str, sentence: str) -> None:
    found = parse(line)
    assert isinstance(found, GrammarError)
    assert sentence in found.message
