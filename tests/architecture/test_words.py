"""Names and first docstring lines use the field's words; the glossary's other words stand nowhere.

A name is a module, a public class or a public function; a line is the first one of a docstring. Each pattern names a
sense of a word, because many of these words have good ones as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("bot", "ledger", "providers", "migrations")
WORDS_MAX = 30

#: Words that no name contains, and what stands in their place.
IN_NAMES = {
    "door doors": "client, app",
    "voice voices witness": "approver, proof",
    "seal seals sealed sealing": "hash",
    "shelf": "cache",
    "stray strays": "orphan",
    "told tell tells telling heard hear hears hearing": "notification, notify",
    "standing lasting": "auto-approval",
    "unattended overlooked unclear vanished": "idle, unresponsive, unknown outcome, lost",
    "placing": "failover",
    "drift drifting": "overspend",
    "desk": "context",
    "gate gates gating": "verification, middleware",
    "wish wishes": "request",
}
RETIRED = frozenset(word for many in IN_NAMES for word in many.split())
#: A name that is one of these words and nothing else says too little.
ALONE = {
    "hold": "checkpoint_hold, pause",
    "held": "…",
    "ask": "request",
    "asked": "…",
    "kept": "retained",
    "meter": "…",
}

#: Senses that no first line has: pattern → what to say.
IN_LINES = {
    r"\bdoors?\b": "client, or the interfaces by name",
    r"\bvoices?\b|\bwitness": "approver, proof",
    r"\bseal(s|ed|ing)?\b": "hash",
    r"\bshel(f|ves)\b": "cache",
    r"\bstrays?\b": "orphan",
    r"\b(is|are|was|were|be|been|being) (told|asked again)\b|\btell(s|ing)?\b|\btold\b": "notify, receive",
    r"(?<!`)\b(heard|hears?|hearing)\b": "receive, check in",
    r"\bstanding (still|approval)|\bstands? still\b": "stopped, auto-approval",
    r"\b(unattended|overlooked|unclear|vanish(ed|es)?)\b": "idle, unresponsive, unknown outcome, lost",
    r"\bdrift(s|ing)?\b": "overspend",
    r"\b(who|those who|people who|may|whoever) decides?\b": "approver",
    r"\bwhoever\b": "name the person",
    r"\b(goes?|going|gone) on\b": "continue",
    r"\b(is|are) over\b": "ended",
    r"\bon (his|her|their|its|your|nobody's|somebody's) word\b|\ba word of\b": "at somebody's request",
    r"\b(taken|takes?) away\b": "terminate",
    r"\bfor (good|ever)\b": "finally, always",
    r"\b(stops?|ends?) the meter\b": "billing",
}
#: Lines in which a pattern has another sense, with the reason.
EXCEPTIONS: dict[str, str] = {}


def files() -> list[Path]:
    """Every module of the program."""
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def parts(name: str) -> list[str]:
    """`StrayFound` and `stray_found` are both `stray`, `found`."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def wrong_name(name: str) -> str:
    """The word of a name that has a better one; empty for a good name."""
    words = parts(name)
    return next(
        (word for word in words if word in RETIRED), words[0] if words and len(words) == 1 and words[0] in ALONE else ""
    )


def wrong_line(line: str) -> str:
    """What is wrong with a first line; empty for a good one."""
    matches = ((re.search(pattern, line, re.IGNORECASE), better) for pattern, better in IN_LINES.items())
    found = next((f"{match[0]!r}: {better}" for match, better in matches if match), "")
    return found or (f"{len(line.split())} words" if len(line.split()) > WORDS_MAX else "")


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The public classes and functions of a module, methods among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.lineno, node.name


def lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The first line of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text.splitlines()[0]


@dataclass(frozen=True)
class Module:
    """The names and first lines of a module, each with its line in the file."""

    path: str
    names: list[tuple[int, str]]
    lines: list[tuple[int, str]]
    classes: list[str]


@cache
def modules() -> list[Module]:
    """Every module of the program, read once for all tests."""
    found = []
    for path in files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [one.name for one in tree.body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")]
        found.append(Module(str(path.relative_to(ROOT)), list(names(tree)), list(lines(tree)), classes))
    return found


def test_modules_have_the_fields_names() -> None:
    # A module is read with its package: `checkpoints.hold` says enough.
    wrong = {path.relative_to(ROOT).as_posix(): wrong_name(f"{path.parent.name}_{path.stem}") for path in files()}
    assert {name: word for name, word in wrong.items() if word} == {}


def test_what_moves_a_run_is_a_relocation_and_migrations_are_the_schemas() -> None:
    homes = [path.relative_to(ROOT) for path in files() if "migration" in f"{path.parent.name}_{path.stem}"]
    assert [path.as_posix() for path in homes if path.parts[0] != "migrations"] == []


def test_modules_are_named_by_what_they_do() -> None:
    """A subject alone is the name of a package; these two once named thirteen modules and three."""
    assert [path.relative_to(ROOT).as_posix() for path in files() if path.stem in ("volumes", "queue_results")] == []


def test_classes_and_functions_have_the_fields_names() -> None:
    found = [
        f"{module.path}:{line} {name}: {word}"
        for module in modules()
        for line, name in module.names
        if (word := wrong_name(name))
    ]
    assert found == []


def test_first_lines_use_the_fields_words() -> None:
    found = [
        f"{module.path}:{number} {why} — {line}"
        for module in modules()
        for number, line in module.lines
        if line not in EXCEPTIONS and (why := wrong_line(line))
    ]
    assert found == []


def test_no_public_class_stands_twice() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules():
        for name in module.classes:
            homes.setdefault(name, []).append(module.path)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize("name", ["SlackDoor", "stray_found", "told_by", "hold", "seal_due", "unattended_due"])
def test_a_retired_name_is_seen(name: str) -> None:
    assert wrong_name(name)


@pytest.mark.parametrize("name", ["checkpoint_hold", "withhold", "orphan_found", "metering", "approver_group"])
def test_a_good_name_passes(name: str) -> None:
    assert not wrong_name(name)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a service says so, not a door", "sent by the expiry job"),
        (
            "Nothing is taken away before its people were told: an end waits for one attempt on every channel.",
            "Termination waits, at most 10 s, until its notification was attempted once on every channel.",
        ),
        (
            "Ends before the approved one, on its word: the approver who decides is told.",
            "A key without `approvals:write` has no approver rights.",
        ),
        ("List instances, or strays of ours.", "List instances, including orphans."),
        ("What stops the meter at a cloud.", "How billing stops at each cloud."),
    ],
)
def test_a_sentence_before_fails_and_after_passes(before: str, after: str) -> None:
    assert wrong_line(before)
    assert not wrong_line(after)
