"""Columns are named with commas; `all` means every one, and a wrong name is answered with the right ones."""

from __future__ import annotations

import pytest

from bot.rules.grammar.column_words import read_columns
from bot.rules.values.bad_word import BadWord

KNOWN = {"rank": "#", "gpu-price": "$/GPU/h", "offer": "offer"}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", ("rank",)),
        (" , ", ("rank",)),
        ("offer, GPU_price", ("offer", "gpu-price")),
        (" All ", ("rank", "gpu-price", "offer")),
    ],
)
def test_columns_are_read(text: str, read: tuple[str, ...]) -> None:
    assert read_columns(text, KNOWN, ("rank",)) == read


def test_an_unknown_column_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadWord, match=r"no column; there are rank, gpu-price, offer\. Did you mean offer\?"):
        read_columns("ofer", KNOWN, ("rank",))
