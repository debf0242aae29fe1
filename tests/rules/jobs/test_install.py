"""The word `install` in a line and in a file."""

from __future__ import annotations

import pytest

from bot.rules.grammar.commands import BY_NAME
from bot.rules.grammar.job import read_words
from bot.rules.jobs.document import JobDocument, pairs
from bot.rules.jobs.facets.install import read_install
from bot.rules.jobs.serve import MODEL_MISSING
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord


def test_a_stack_is_named_in_any_case() -> None:
    assert read_install("Train", Policy()) == {"install": "train"}


def test_a_wrong_name_is_refused_with_the_right_ones() -> None:
    with pytest.raises(BadWord, match=r"can't be installed by name; there are train and serve\..*train"):
        read_install("trian", Policy())


def test_a_file_says_the_same() -> None:
    assert list(pairs(JobDocument(install="serve"))) == [("install", "install", "serve")]


@pytest.mark.parametrize(("model", "sentences"), [("model=7B", 1), ("", 1), ("model=org/name", 0)])
def test_a_served_model_is_named_as_the_hub_names_it(model: str, sentences: int) -> None:
    draft = read_words(f"4090 2h install=serve workload=serve {model}", Policy())
    said = [sentence for word, sentence in draft.missing(BY_NAME["provision"]) if word == "model"]
    assert said == [MODEL_MISSING] * sentences
