"""Texts: nothing dangerous survives, everything fits."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.blockkit import (
    clean,
    escape,
    measure,
    mrkdwn,
    plain,
    quote_block,
    unescape,
    validate_message,
)
from tests.blockkit.builders import (
    ANY_TEXT,
    HOSTILE,
)


@given(ANY_TEXT | HOSTILE)
def test_nothing_dangerous_survives(text: str) -> None:
    safe = escape(clean(text, 200))
    assert not re.search(r"<[!@#h]", safe)
    assert "<" not in safe
    assert ">" not in safe
    kept = {unicodedata.category(c) for c in safe if c != "\u200d"}
    assert not kept & {"Cc", "Cf", "Cs", "Co"}
    assert "\n" not in safe
    safe.encode("utf-8")


@given(ANY_TEXT | HOSTILE, st.integers(1, 120))
def test_a_cleaned_text_fits_after_escaping(text: str, limit: int) -> None:
    assert measure(escape(clean(text, limit))) <= limit


@given(ANY_TEXT)
def test_escape_has_an_inverse(text: str) -> None:
    assert unescape(escape(text)) == text


@given(ANY_TEXT | HOSTILE, st.integers(1, 75))
def test_plain_objects_are_always_valid_when_there_is_something_to_say(text: str, limit: int) -> None:
    made = plain(text, limit)
    if made["text"]:
        assert validate_message({"text": "x", "blocks": [{"type": "header", "text": made}]}) == []


@pytest.mark.parametrize(
    ("text", "limit", "cleaned"),
    [
        ("  two \n\n lines\t", 50, "two lines"),
        ("a\u202eb\u2066c\u200bd\ufeff", 50, "abcd"),
        ("abcdef", 4, "abc…"),
        ("ab cdef", 4, "ab…"),
        ("&&&&", 11, "&&…"),
        ("&", 5, "&"),
        ("family 👩‍👩‍👧", 50, "family 👩‍👩‍👧"),
        ("x" * 10, 1, "…"),
    ],
)
def test_clean(text: str, limit: int, cleaned: str) -> None:
    assert clean(text, limit) == cleaned


def test_a_limit_needs_room() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        clean("x", 0)


def test_builders() -> None:
    assert mrkdwn("*x*") == {"type": "mrkdwn", "text": "*x*", "verbatim": True}
    assert plain("a\nb") == {"type": "plain_text", "text": "a b", "emoji": False}
    assert measure("😀a") == 3
    assert validate_message({"text": "x", "blocks": [quote_block("*bold*\nwords"), quote_block("")]}) == []
