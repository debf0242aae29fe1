"""Fields: each says what it means, and what is wrong with one is said in words, whatever the validator calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bot.api import reference
from bot.api.field_sentences import OTHERWISE, PREDICATES, predicate
from bot.api.problems import invalid
from bot.api.schemas import agent, keys, ledger, market, money, operators, requests, sessions, webhooks
from bot.api.schemas.base import In
from bot.rules.jobs.document import JobDocument
from tests.api.door import DOCUMENT

MODULES = (agent, keys, ledger, market, money, operators, requests, sessions, webhooks)
BODIES = sorted(
    {one for module in MODULES for one in vars(module).values() if isinstance(one, type) and issubclass(one, In)} - {In}
    | {JobDocument},
    key=lambda one: one.__name__,
)
JUNK: tuple[Any, ...] = (None, "", "x" * 5000, "ü\x00", -1, 1.5, 10**30, True, [], [None] * 5000, {}, {"a": 1}, "2026")
#: A validator's own words, and the signs of a regular expression.
FOREIGN = re.compile(r"should|[Ii]nput|pattern|valid (string|integer|number|list|dict)|\^|\$|\[[a-z0-9]", re.ASCII)


def _errors(body: type[In]) -> Iterator[Any]:
    for name in (*body.model_fields, "no_such_field"):
        for junk in JUNK:
            try:
                TypeAdapter(body).validate_python({name: junk})
            except ValidationError as error:
                yield from error.errors()


@pytest.mark.parametrize("body", BODIES, ids=lambda one: one.__name__)
def test_every_problem_of_a_body_is_said_in_words(body: type[In]) -> None:
    seen = 0
    for error in _errors(body):
        seen += 1
        reply, (field,) = invalid([error])
        assert predicate(error) != OTHERWISE, error["type"]
        for sentence in (reply.sentence, field.sentence):
            assert not FOREIGN.search(sentence), (error["type"], sentence)
            assert sentence.endswith("."), sentence
    assert seen > len(JUNK) / 2


def test_a_kind_of_problem_without_a_line_is_said_in_words_too() -> None:
    error = {"type": "callable_type", "loc": ("body", "name"), "msg": "Input should be callable"}
    reply, _ = invalid([error])
    assert reply.sentence == f"name {OTHERWISE}."
    lacking = {"type": "greater_than", "loc": ("body", "count"), "msg": "Input should be greater than 1"}
    assert invalid([lacking])[0].sentence == f"count {OTHERWISE}."
    assert invalid([])[0].sentence == "The call cannot be read."
    assert all("{" in text or not FOREIGN.search(text) for text in PREDICATES.values())


def _fields(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, schema in document["components"]["schemas"].items():
        for field, told in schema.get("properties", {}).items():
            yield name, field, told


def _parameters(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for one in operation.get("parameters", ()):
                yield f"{method} {path}", one


def test_no_field_and_no_parameter_is_without_a_description() -> None:
    assert [f"{name}.{field}" for name, field, told in _fields(DOCUMENT) if not told.get("description")] == []
    unsaid = [
        f"{place} {one['name']}"
        for place, one in _parameters(DOCUMENT)
        if not (one.get("description") or one["schema"].get("description"))
    ]
    assert unsaid == []


def test_the_page_shows_every_document_with_its_fields() -> None:
    page = reference.page(DOCUMENT)
    for name, field, _ in _fields(DOCUMENT):
        assert f"<details id='{name}'>" in page
        assert f"<td>{field}" in page
    assert "<td>." not in page
    assert "`" not in page
