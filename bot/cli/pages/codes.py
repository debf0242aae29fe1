"""docs/errors.md: the codes that programs read, collected from the source, so that none can be forgotten."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.cli.pages.markdown import code, table
from bot.cli.pages.markdown import page as whole
from bot.rules.grammar.parser import GrammarError
from bot.rules.market.filters import EXCLUSIONS
from providers import errors

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("bot/rules", "bot/services", "bot/api")
CODE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]{2,}")
#: A call with one of these names carries a code followed by the sentence that people read.
CARRIERS = re.compile(r"Reply|.*Verdict|KeyRefused|BadHolder|_?refuse\w*|_no|end_session|end_instance")
BLANK = "…"


def _provider_errors() -> list[tuple[str, str, str]]:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProviderError)
    ]
    return [(code(k.code), " ".join((k.__doc__ or "").split()), "yes" if k.definite_no else "no") for k in kinds]


def answers() -> list[tuple[str, str, str]]:
    """`(code, one sentence that goes with it, where it is made)` for every answer of a service or a rule."""
    found: dict[str, tuple[str, str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, sentence in _in_module(ast.parse(path.read_text(encoding="utf-8"))):
                if name not in found or found[name][0].strip(f"{BLANK}.") == "":
                    found[name] = (sentence, path.relative_to(ROOT).as_posix())
    found[GrammarError.code] = ("What is wrong with which word, and a correct example.", "bot/rules/grammar/parser.py")
    return [(name, *found[name]) for name in sorted(found)]


def _in_module(tree: ast.Module) -> Iterator[tuple[str, str]]:
    module = [node for node in tree.body if isinstance(node, ast.Assign)]
    yield from _in_order(module)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_order(function.body)


def _in_order(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The codes of one scope. A sentence may have been given a name above; the last one above counts."""
    nodes = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Assign | ast.Call)]
    sentences: dict[str, str] = {}
    for node in sorted(nodes, key=lambda found: (found.lineno, found.col_offset)):
        if isinstance(node, ast.Call):
            yield from _in_call(node, sentences)
        elif len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            sentences[node.targets[0].id] = _sentence(node.value, sentences)


def _in_call(node: ast.Call, sentences: dict[str, str]) -> Iterator[tuple[str, str]]:
    if not CARRIERS.fullmatch(_name(node)):
        return
    for argument, following in itertools.pairwise(node.args):
        text = argument.value if isinstance(argument, ast.Constant) else None
        if isinstance(text, str) and CODE.fullmatch(text):
            yield text, _sentence(following, sentences)
            return


def _name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _sentence(node: ast.expr, known: dict[str, str]) -> str:
    """The literal text of a sentence, with dots where a value is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else BLANK for part in node.values]
        return "".join(str(part) for part in parts)
    if isinstance(node, ast.Name):
        return known.get(node.id, BLANK)
    return BLANK


def page() -> str:
    """The page."""
    return whole(
        "Error and answer codes",
        "Programs read codes; people read the sentence beside them. A code keeps its meaning once it is released.",
        "## What a cloud can answer",
        "On a create, *definite no* separates “try the next offer” from “the outcome is unknown”.",
        table(("code", "meaning", "definite no"), _provider_errors()),
        "## What a command or a click is answered",
        "Dots stand for values.",
        table(("code", "sentence", "from"), [(code(a), b, code(c)) for a, b, c in answers()]),
        "## Why an offer is left out",
        table(("code", "sentence"), [(code(name), text.replace("{n}", BLANK)) for name, text in EXCLUSIONS.items()]),
    )
