"""The word `install` in a line and in a file."""

from __future__ import annotations

import pytest

from bot.rules.grammar.bad_word import BadWord
from bot.rules.grammar.install_word import read_install
from bot.rules.grammar.job_document import JobDocument, pairs
from bot.rules.policy.policy import Policy


def test_a_stack_is_named_in_any_case() -> None:
    assert read_install("Train", Policy()) == {"install": "train"}


def test_a_wrong_name_is_refused_with_the_right_ones() -> None:
    with pytest.raises(BadWord, match=r"can't be installed by name; there are train and serve\..*train"):
        read_install("trian", Policy())


def test_a_file_says_the_same() -> None:
    assert list(pairs(JobDocument(install="serve"))) == [("install", "install", "serve")]
