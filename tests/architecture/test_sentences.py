"""Every sentence that a person can read follows `words.md`: the field's words, and at most 30 words a sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sentences import ROOT, fault, openapi, prose, reads_as_text, sentences, strings

RULES = Path(__file__).with_name("words.md")
LAYERS = ("bot", "ledger", "providers", "migrations")
#: Programs that imitate other people's: their texts are Slack's and the clouds' own.
IMITATIONS = ("bot/practice/", "providers/sandbox/")
#: Statements for a database, and tables of measured runs with their sources.
DATA = ("migrations/baseline/", "migrations/versions/", "bot/rules/sizing/throughput_data.py")
#: What a sentence begins with, although a pattern finds something in it → why it stays.
EXCEPTIONS = {
    "body{font": "a style sheet",
    "<!doctype html>": "the frame of an HTML page",
    "import base64, json, os": "a program that runs at Kaggle",
    "when a request is waiting": "a list of states, in a table of the reference",
    "GET /inventory, POST /plans": "the calls that a command makes, in a table of the reference",
}


@cache
def spoken() -> list[tuple[str, str, str]]:
    """Every string of the program that reads as text and is at fault, with its place and why."""
    found: list[tuple[str, str]] = []
    for path in sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith((*IMITATIONS, *DATA)):
            texts = strings(ast.parse(path.read_text(encoding="utf-8")))
            found += [(f"{name}:{line}", text) for line, text in texts if reads_as_text(text)]
    return at_fault(found)


@cache
def written() -> list[tuple[str, str, str]]:
    """The same of every paragraph of the pages, the decision records among them."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("providers/profiles/*.md")]
    found = [(f"{path.relative_to(ROOT)}:{line}", text) for path in sorted(pages) for line, text in prose_of(path)]
    return at_fault(found)


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page."""
    return prose(path.read_text(encoding="utf-8"))


def at_fault(texts: Iterable[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """The texts in which something is wrong, with their places and what it is."""
    return [(place, text, why) for place, text in texts if (why := fault(text))]


def faults(found: Iterable[tuple[str, str, str]]) -> list[str]:
    """What is wrong, as lines for the reader of a failed test."""
    return [f"{place}: {why} — {text[:160]!r}" for place, text, why in found if not text.startswith(tuple(EXCEPTIONS))]


@cache
def table() -> list[tuple[str, str]]:
    """The rows of the page's own table: `(before, after)`."""
    page = RULES.read_text(encoding="utf-8").partition("## Sentences, before and after")[2].partition("\n## ")[0]
    return re.findall(r"^\| (?!before|---)(.+?) \| (.+?) \|$", page, re.MULTILINE)


def test_what_the_program_says() -> None:
    assert faults(spoken()) == []


def test_what_the_pages_say() -> None:
    assert faults(written()) == []


def test_what_the_description_of_the_api_says() -> None:
    texts = (("docs/openapi.json", text) for text in openapi(ROOT / "docs" / "openapi.json"))
    assert faults(at_fault(texts)) == []


def test_every_exception_is_still_needed() -> None:
    texts = [text for _, text, _ in (*spoken(), *written())]
    assert {begin for begin in EXCEPTIONS if not any(text.startswith(begin) for text in texts)} == set()


def test_the_titles_of_decision_records_name_their_subject() -> None:
    titles = [(path.name, path.read_text(encoding="utf-8").partition("\n")[0]) for path in ROOT.glob("docs/adr/*.md")]
    assert len(titles) > 30
    assert faults(at_fault(titles)) == []


def test_the_table_of_the_page_is_read() -> None:
    assert len(table()) > 25


@pytest.mark.parametrize(("before", "after"), table())
def test_each_sentence_of_the_table_fails_before_and_passes_after(before: str, after: str) -> None:
    assert fault(before)
    assert not fault(after)


@pytest.mark.parametrize(
    "text",
    [
        "The request is asked again.",
        "Nobody decides for anybody else now.",
        "It is being ended as a stray.",
        "The request of alice stands still.",
        "The cloud says STARTING.",
        "a service says so, not a move",
        "Stop it: " + "word " * 31,
    ],
)
def test_a_bad_sentence_is_found(text: str) -> None:
    assert fault(text)


@pytest.mark.parametrize(
    "text",
    [
        "Alice asks for 4 GPUs.",
        "An approver decides.",
        "An ed25519 key looks like this.",
        "`stray.seen` is the stored name.",
        "Needs 1 approval from @bob or @carol.",
        "The disk runs on the host that you chose.",
    ],
)
def test_a_good_sentence_passes(text: str) -> None:
    assert not fault(text)


def test_strings_are_collected_with_their_parts() -> None:
    module = ast.parse(
        '"""A docstring."""\n'
        'text = f"It is {name or \'asked again\'} now. " + "And " f"then {3} more."\n'
        "said = 'one', ('two words here')\n"
    )
    found = [text for _, text in strings(module)]
    assert found == ["It is X now. And then X more.", "asked again", "one", "two words here"]


def test_a_page_is_read_without_its_code() -> None:
    page = "---\nkind: x\n---\n# Title\n\nOne line\nand its rest.\n\n```\ncode here\n```\n| a cell | `b` |\n"
    assert [text for _, text in prose(page)] == ["# Title", "One line and its rest.", "a cell", "`b`"]


def test_a_text_is_cut_into_sentences() -> None:
    assert sentences("One. Two! And `a.b` three? 1.5 h") == ["One.", "Two!", "And `a.b` three?", "1.5 h"]


def test_the_limit_on_hours_is_said_with_the_number_of_the_policy() -> None:
    """`max_hours` is a setting, so no sentence of the program has its default written into it."""
    at = [
        f"{path.relative_to(ROOT).as_posix()}:{line}"
        for path in sorted((ROOT / "bot").rglob("*.py"))
        for line, text in strings(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"\b12[- ](hour|h)\b (limit|override)", text)
    ]
    assert at == []
