"""Typed text becomes one safe line, and words that know where they stood."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.values.text import UnclosedQuote, WordToken, caret, clean, in_markdown, tokens

ALPHABET = st.characters() | st.sampled_from(list("\"'“”‘’ =<>&;`\t\n\x00\u202e\u2066\u200b\ud800"))


@pytest.mark.parametrize(
    ("typed", "made"),
    [
        ("  a \t\n b\u00a0c ", "a b c"),
        ("“fine-tune”", '"fine-tune"'),
        ("‘x’ ≥ 40 × −2", "'x' >= 40 x -2"),
        ("memory&gt;=40 &lt;!channel&gt;", "memory>=40 <!channel>"),
        ("&amp;lt;", "&lt;"),
        ("a\x00b\u202ec\u2066d\u200be\ud800f", "abcdef"),
    ],
)
def test_clean(typed: str, made: str) -> None:
    assert clean(typed) == made


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("4× RTX_4090 ≥ 24 GB, <$0.44/h", "4× RTX_4090 ≥ 24 GB, <$0.44/h"),
        ("a | b\n# c", "a \\| b # c"),
        ("![x](https://evil.example)", "!\\[x\\](https://evil.example)"),
        ("\\| `rm` <img src=x>\x1b[31m\u202e", "\\\\\\| \\`rm\\` \\<img src=x>\\[31m"),
    ],
)
def test_foreign_text_begins_nothing_in_markdown(said: str, shown: str) -> None:
    assert in_markdown(said) == shown


@given(typed=st.text(ALPHABET))
def test_no_control_or_bidi_character_is_left(typed: str) -> None:
    made = clean(typed)
    assert not any(unicodedata.category(char).startswith("C") for char in made)
    assert made == " ".join(made.split())


def test_words_know_where_they_stood() -> None:
    assert tokens("a  for=\"x y\"z 'q w'") == [
        WordToken("a", "a", 0),
        WordToken("for=x yz", 'for="x y"z', 3, quoted=True),
        WordToken("q w", "'q w'", 14, quoted=True),
    ]


def test_an_apostrophe_inside_a_word_is_no_quote() -> None:
    assert [word.value for word in tokens("it's ada's")] == ["it's", "ada's"]


def test_an_open_quote_says_where() -> None:
    with pytest.raises(UnclosedQuote) as caught:
        tokens('4090 for="fine')
    assert caught.value.position == 9


def cut(line: str) -> list[WordToken] | int:
    """The words of a line, or where its open quote stands."""
    try:
        return tokens(line)
    except UnclosedQuote as error:
        return error.position


@given(typed=st.text(ALPHABET))
def test_words_are_cut_from_the_line_as_they_stand(typed: str) -> None:
    line = clean(typed)
    found = cut(line)
    if isinstance(found, int):
        assert line[found] in "\"'"
        return
    assert all(line[word.position : word.position + len(word.raw)] == word.raw for word in found)
    assert " ".join(word.raw for word in found) == line


def test_carets_stand_under_the_word() -> None:
    assert caret("provision 4091 2h", 10, 4) == "provision 4091 2h\n          ^^^^"
    assert caret("`x`", 0, 3) == "'x'\n^^^"
    assert caret("", 0, 0) == "\n^"


@given(before=st.integers(0, 300), word=st.integers(0, 300), after=st.integers(0, 300), width=st.integers(10, 100))
def test_a_long_line_is_windowed_and_the_carets_stay_right(before: int, word: int, after: int, width: int) -> None:
    line = "b" * before + "w" * word + "a" * after
    shown, under = caret(line, before, word, width).split("\n")
    assert len(shown) <= width + 2
    marked = shown[under.index("^") : under.index("^") + under.count("^")]
    assert set(marked.rstrip("…")) <= {"w"} if word else len(under.strip()) == 1
    assert under.strip("^ ") == ""
