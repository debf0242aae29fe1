"""The words that change a running session, and the language read from pairs instead of a line."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.policy.policy import Policy


def test_more_hours_with_their_reason() -> None:
    found = parse('extend s-1a2b 2h for="one more epoch"')
    assert isinstance(found, ParsedCommand)
    assert (found.target, found.hours, found.text) == ("s-1a2b", Decimal(2), "one more epoch")


@pytest.mark.parametrize(
    ("typed", "hours", "reason"),
    [
        ("2h one more epoch", 2, "one more epoch"),
        ("2 hours the 4090 isn't done yet", 2, "the 4090 isn't done yet"),
        ("90m for the demo, 2h later", Decimal("1.5"), "for the demo, 2h later"),
        ("2h A100 needs it", 2, "A100 needs it"),
        ("2h", 2, ""),
    ],
)
def test_more_hours_with_their_reason_in_any_words(typed: str, hours: Decimal, reason: str) -> None:
    found = parse(f"extend s-1a2b {typed}")
    assert isinstance(found, ParsedCommand), found
    assert (found.target, found.hours, found.text) == ("s-1a2b", hours, reason)


@pytest.mark.parametrize(
    ("line", "word", "says"),
    [
        ("extend s-1a2b", "", "Say how much more, such as 2h or 90m."),
        ("extend s-1a2b 2h 3h", "3h", "takes one time and one reason"),
        ("extend s-1a2b 2h spot=no", "spot=no", "takes one time and one reason"),
        ("extend s-1a2b soon", "soon", ""),
        ("extend", "", "needs the id"),
        ("done s-1a2b maybe", "maybe", "takes success or failed, and destroy or preserve"),
        ("done s-1a2b ok success", "success", "takes success or failed, and destroy or preserve"),
        ("costs yearly", "yearly", "is not one of month, day, year, total, summary, mine, team"),
        ("costs daily hourly", "hourly", "takes one word"),
        ("done s-1a2b keep destroy", "destroy", "takes success or failed, and destroy or preserve"),
        ("terminate", "", "needs the id"),
        ("terminate s-1a2b s-9z8y", "s-9z8y", "takes one id, and now after it"),
        ("terminate s-1a2b now s-9z8y", "s-9z8y", "takes one id, and now after it"),
    ],
)
def test_a_wrong_word_is_named(line: str, word: str, says: str) -> None:
    found = parse(line)
    assert isinstance(found, GrammarError)
    assert (found.word, says in found.message) == (word, True)


@pytest.mark.parametrize(
    ("words", "how", "disk"),
    [
        ("", "success", ""),
        (" failed", "failed", ""),
        (" failed delete", "failed", "destroy"),
        (" preserve", "success", "preserve"),
        (" failure keep", "failed", "preserve"),
    ],
)
def test_how_the_work_went_and_what_happens_to_the_disk(words: str, how: str, disk: str) -> None:
    found = parse("done s-1a2b" + words)
    assert isinstance(found, ParsedCommand)
    assert (found.action, found.text) == (how, disk)


@pytest.mark.parametrize(("words", "asks"), [("", ""), (" now", "now"), (" --yes", "now")])
def test_an_end_is_asked_about_unless_it_is_said(words: str, asks: str) -> None:
    found = parse("kill s-1a2b" + words)
    assert isinstance(found, ParsedCommand)
    assert (found.name, found.target, found.action) == ("terminate", "s-1a2b", asks)


def test_pairs_add_to_a_line() -> None:
    line = "provision 2xA100 3h"
    both = parse(line, more=[("for", 'a "b" c'), ("max", "$50")])
    assert both == parse("provision 2xA100 3h for='a \"b\" c' max=$50")
    again = parse(line, more=[("for", "a"), ("hours", "2")])
    assert isinstance(again, GrammarError)
    assert (again.pair, again.message) == (
        2,
        "“hours=2” repeats what was already said. Keep one of the two.",
    )


def test_pairs_say_the_same_as_a_line() -> None:
    line = parse('provision 2xA100 3h for="a b"')
    pairs = parse("provision", Policy(), [("gpu", "A100"), ("count", "2"), ("hours", "3h"), ("for", "a b")])
    assert isinstance(line, ParsedCommand)
    assert isinstance(pairs, ParsedCommand)
    assert pairs.job == line.job


def test_a_wrong_pair_is_named_by_its_number() -> None:
    found = parse("provision", Policy(), [("gpu", "A100"), ("hours", "soon")])
    assert isinstance(found, GrammarError)
    assert (found.pair, found.word, found.line) == (2, "hours=soon", "provision")


def test_costs_are_those_of_the_month_unless_another_view_is_named() -> None:
    for line, view in (("costs", "month"), ("costs Monthly", "monthly"), ("costs team", "team")):
        found = parse(line)
        assert isinstance(found, ParsedCommand)
        assert found.action == view


def test_who_decides_in_ones_place_and_what_starts_at_once() -> None:
    for line, action, target in (
        ("delegate", "list", ""),
        ("delegate LIST", "list", ""),
        ("delegate off", "off", ""),
        ("delegate <@U0DAVE|dave> until 2026-12-01", "set", "slack:U0DAVE"),
        ("delegate operator:ada 2026-12-01", "set", "operator:ada"),
    ):
        found = parse(line)
        assert isinstance(found, ParsedCommand)
        assert (found.action, found.target) == (action, target)
        assert found.day == (date(2026, 12, 1) if action == "set" else None)
    glass = parse('break-glass 4k7m2p for="the demo is down"')
    assert isinstance(glass, ParsedCommand)
    assert (glass.target, glass.text) == ("4k7m2p", "the demo is down")
    for line, word in (
        ("delegate off now", "now"),
        ("delegate bob until 2026-12-01", "bob"),
        ("delegate U0DAVE", ""),
        ("delegate U0DAVE 2026-12-01 soon", "soon"),
        ("delegate U0DAVE until friday", "friday"),
        ("break-glass 4k7m2p", ""),
    ):
        wrong = parse(line)
        assert isinstance(wrong, GrammarError), line
        assert wrong.word == word
