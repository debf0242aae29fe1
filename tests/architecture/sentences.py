"""Collect every sentence that a person can read, and find what is wrong with one.

A sense is a pattern with the better words. It names one meaning of a word, because most of these words have good
meanings too: "ask for GPUs" is plain English, "the request is asked again" is not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS_MAX = 30

#: Pattern → what to say.
SENSES = {
    # Requests, offers and decisions
    r"\basked again\b|\basks? it again\b": "new offers were requested",
    r"\b(nothing|the rest|more time|yet) (is|was) asked for\b": "requested",
    r"\boffers? answered\b|\bwould answer\b": "offers found, would fit",
    r"\b(who|whoever|those who|people who|everybody who) decides?\b|\b(nobody|those) who approves?\b": "approver",
    r"\b(may|must) (not )?decide\b|\bdecides? (for|in)\b|\b(is|are|be|was|were|been) (not )?decided\b": "approve",
    r"\b(nobody|somebody|somebody else) (has )?decide[sd]?\b|^(one|two) approvers? decides?\b": "approve, reject",
    r"\bin somebody's place\b": "for @alice",
    r"\bvoices?\b|\bwitness": "approver, proof",
    r"\b(ask|and you are not) one of them\b|\bsomebody else decides\b": "name who can do it, as a command",
    r"\bstanding approval\b|\bend stands\b|\bhow (it|a request) stands\b": "auto-approval, is, stays, status",
    r"\bst(ands?|anding|ood) (still|alone|any more|until|where)\b": "stopped, stays",
    # Sessions and instances
    r"\breservations?\b": "session",
    r"\b(machines?|instances?|those|things?) of (ours|theirs|yours)\b": "our instances",
    r"\bno row\b|\bwithout an? (instance )?row\b": "orphan",
    r"\b(is|was|were|be|been) ordered\b|\btook the order\b": "name the action: stopping, terminating",
    r"\b(take[sn]?|took) (it |them )?away\b|\blet (it|session \S+|them) go\b": "terminate",
    r"\b(is|are|was|were) over\b": "ended",
    r"\bwhen it goes\b|\bgoes with (it|its)\b|\blost with it\b": "deleted",
    r"\bconfirmed gone\b|\bis confirmed when\b": "ended",
    r"\bstrays?\b": "orphan",
    r"\bnothing of yours\b|\bnothing waits\b|\bnobody's instance\b": "you have no sessions or requests",
    r"\bvanish(ed|es)?\b|\boverlooked\b|\bunattended\b": "lost, idle, unresponsive",
    r"\bkept disks?\b|\bdisks kept\b": "retained disk",
    r"\bdrift(s|ed|ing)?\b": "overspend",
    r"\bdear(er|est)?\b": "expensive",
    r"\b(the|a|one|two|each|every|next|last|another) looks?\b(?! like)": "check, listing",
    r"\bplaced\b|\bplacing\b|\btried next\b|\btry next\b": "launch, failover",
    r"\bunclear\b": "unknown",
    r"\bgat(e|es|ing)\b(?<!spend gate)(?<!spend gates)": "approval, verification",
    r"\bneeds, takes and costs\b": "memory, time and cost",
    r"\b(the|a|of|in) hold\b": "checkpoint hold",
    r"\b(is|are|was|were) held\b|\bit is held\b": "kept running",
    r"\bsilent\b|\bsilence\b": "unresponsive",
    r"\b(goes|going|gone|go) on\b|\b(costs|runs) on(?=[.,;:]|$)": "continues",
    r"\bsomebody keeps\b|\bis kept until\b": "stays until",
    r"\bits people\b|\bhaving had\b": "name them",
    # Messages
    r"\b(is|are|was|were|be|been|being) (not )?told\b|\btold\b|\btelling\b|\btells of\b": "notify, receive",
    r"(?<!`)\bheard\b|\bhearing\b": "receive",
    r"\blast call\b": "final warning",
    r"\bon (his|her|their|its|your|nobody's|somebody's|an operator's) word\b|\bword of yours\b": "key, request",
    r"\b(operator|nobody)'s word\b": "key, request",
    r"\bdoors?\b": "client",
    r"\b(service|job|move) says so\b": "name who sends it",
    r"\bneeds no action\b": "say what happened",
    # Money
    r"\bconcerns? (you|nobody|him|her)\b": "you have no budget",
    r"\bcomes? on top\b|\bhour under way\b|\b(in )?booked hours[;.]": "so far",
    r"\b(the|a) meter\b|\bmeters\b": "billing",
    r"\bseal(s|ed|ing)?\b": "hash chain",
    r"\bshel(f|ves)\b": "cache",
    r"\bcounted for risk\b|\bas assumed\b|\btyped to confirm\b|\bto be had\b": "cheapest, most reliable (estimate)",
    r"\bleft out:": "skipped:",
    # Machinery
    r"(?-i:\bsays [A-Z]{4,}\b|\b(LIVE|SENDING|TERMINATING|TOMBSTONE|QUOTING|QUEUED)\b)": "the state in words",
    r"string should match|what this (route|field) takes": "name the field and an example",
    r"\bis taken at once\b|\bno use\b|\bwhat is lost\b|\bWhat is in\b": "say it plainly",
    r"\bwhoever\b": "name the person",
    r"\bnot how it\b": "status",
    r"\bfor good\b": "permanently",
    r"\bwaits for a decision already\b|\bshown to those\b": "you already asked",
    r"\bnobody here\b|\bnobody asked\b": "say who",
}
COMPILED = {re.compile(pattern, re.IGNORECASE): better for pattern, better in SENSES.items()}


def fault(text: str) -> str:
    """What is wrong with a text; empty for a good one. Names in backticks are code."""
    text = re.sub(r"``.+?``|`[^`]*`", "X", text)
    for pattern, better in COMPILED.items():
        if match := pattern.search(text):
            return f"{match[0]!r}: {better}"
    longest = max(sentences(text), key=lambda sentence: len(words(sentence)), default="")
    count = len(words(longest))
    return f"{count} words in one sentence" if count > WORDS_MAX else ""


def sentences(text: str) -> list[str]:
    """A text cut at full stops, question marks, line ends, and the signs that separate the parts of a list."""
    return [part for part in re.split(r"(?<=[.!?…])[\"')*_`]*\s+|\n|\s[·|→]\s|<br>", text) if part.strip()]


def words(sentence: str) -> list[str]:
    """The words of a sentence; numbers, ids and signs do not count."""
    return re.findall(r"[A-Za-z][A-Za-z'’-]*", re.sub(r"https?://\S+", "X", sentence))


def reads_as_text(text: str) -> bool:
    """Whether a string is meant for people: three words or more, and no code."""
    return len(re.findall(r"\b[A-Za-z]{2,}\b", text)) > 2 and " " in text.strip()


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module that are no docstrings; what an f-string fills in stands as `X`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if (text := constant(node)) is None:
            yield from strings(node)
            continue
        yield getattr(node, "lineno", 0), text
        for inner in ast.walk(node):
            if isinstance(inner, ast.FormattedValue):
                yield from strings(inner)


def constant(node: ast.AST) -> str | None:
    """The text of a string, an f-string or a sum of them."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(constant(part) or "X" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left), constant(node.right)
        return None if left is None and right is None else f"{left or 'X'}{right or 'X'}"
    return None


def described(document: object) -> Iterator[str]:
    """Every description and summary of a JSON document; titles are made from the names of fields."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key in ("description", "summary") and isinstance(value, str):
                yield value
            else:
                yield from described(value)
    elif isinstance(document, list):
        for value in document:
            yield from described(value)


def prose(markdown: str) -> Iterator[tuple[int, str]]:
    """The paragraphs and table cells of a page, with their line's number, without code and front matter."""
    front = re.match(r"---\n.*?\n---\n", markdown, re.DOTALL)
    markdown = "\n" * front[0].count("\n") + markdown[front.end() :] if front else markdown
    paragraph: list[str] = []
    begins, code = 1, False
    for number, line in enumerate([*markdown.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        code = code != fence
        if fence or code or not line.strip() or re.match(r"\s*([-*|#>]|\d+\.)\s?", line):
            if paragraph:
                yield begins, " ".join(paragraph)
            paragraph = []
        if fence or code or not line.strip():
            continue
        if line.lstrip().startswith("|"):
            yield from ((number, cell.strip()) for cell in line.split("|") if cell.strip())
            continue
        begins = begins if paragraph else number
        paragraph.append(line.strip())


def openapi(path: Path) -> Iterator[str]:
    """Every sentence of the OpenAPI document."""
    yield from described(json.loads(path.read_text(encoding="utf-8")))
