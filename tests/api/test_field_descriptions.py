"""Every field that a caller sends or gets says what it means, in the OpenAPI document and on `/docs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bot.api import reference
from tests.api.door import DOCUMENT


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
