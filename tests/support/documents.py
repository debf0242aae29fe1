"""The clouds' official API documents, and what of a recorded call does not agree with them.

They are read where a checkout has them beside it, in `../shared/data/openapi`, and nowhere else.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT.parent / "shared" / "data" / "openapi"
FILES: Mapping[str, str] = {"runpod": "runpod_v2.json", "lambda": "lambda.json", "vast": "vast_*.yaml"}
METHODS = frozenset({"get", "put", "post", "patch", "delete"})

needs_documents = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the clouds' documents (../shared/data/openapi) are not beside this checkout"
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One recorded call. `disturbed` says that a fault was armed, so that the answer is no cloud's ordinary one."""

    cloud: str
    method: str
    path: str
    query: str
    sent: bytes
    status: int
    answered: bytes
    disturbed: bool

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One documented operation: its document, and where it stands in it."""

    uri: str
    pattern: re.Pattern[str]
    path: str
    method: str
    body: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method.upper()} {self.path}"


class Documents:
    """All operations of one cloud."""

    def __init__(self, cloud: str) -> None:
        self._registry: Registry[Any] = Registry()
        self.operations: list[Operation] = []
        for file in sorted(FOLDER.glob(FILES[cloud])):
            text = file.read_text()
            document = json.loads(text) if file.suffix == ".json" else _modern(yaml.safe_load(text))
            uri = f"document:{file.name}"
            self._registry = self._registry.with_resource(uri, DRAFT202012.create_resource(document))
            for path, by_method in document["paths"].items():
                pattern = re.compile(
                    re.sub(r"\{[^}]+\}", "[^/]+", re.escape(path).replace(r"\{", "{").replace(r"\}", "}"))
                )
                for method in METHODS & by_method.keys():
                    body = {**by_method[method], "shared": by_method.get("parameters", [])}
                    self.operations.append(Operation(uri, pattern, path, method, body))
        # A path without places comes first: `/instances/reboot/7/` is not `/instances/{id}/…`.
        self.operations.sort(key=lambda one: one.path.count("{"))

    def fitting(self, method: str, path: str) -> list[Operation]:
        """The operations that describe such a call; those with the fewest places in their path."""
        found = [one for one in self.operations if one.method == method.lower() and one.pattern.fullmatch(path)]
        return [one for one in found if one.path == found[0].path]

    def resolved(self, operation: Operation, node: Any) -> Any:
        """The node itself, or what it refers to."""
        if isinstance(node, dict) and "$ref" in node:
            return self._registry.resolver(operation.uri).lookup(node["$ref"]).contents
        return node

    def answer(self, operation: Operation, status: int) -> Any:
        """What the operation says about answers with this status; None when it says nothing."""
        answers = operation.body["responses"]
        return self.resolved(operation, answers.get(str(status), answers.get("default")))

    def problems(self, call: Exchange) -> Iterator[str]:
        """Everything that the documents say otherwise, as `operation: place: what`."""
        fitting = self.fitting(call.method, call.path)
        if not fitting:
            yield f"{call.method} {call.path}: not documented"
            return
        # Two pages may describe one path, each for what it sets there.
        yield from min(([*self._against(one, call)] for one in fitting), key=len)

    def _against(self, operation: Operation, call: Exchange) -> Iterator[str]:
        yield from (f"{operation.name}: {one}" for one in self._about_request(operation, call))
        if not call.disturbed:
            yield from (f"{operation.name}: {one}" for one in self._about_answer(operation, call))

    def _about_request(self, operation: Operation, call: Exchange) -> Iterator[str]:
        said = [
            self.resolved(operation, one) for one in (*operation.body["shared"], *operation.body.get("parameters", []))
        ]
        known = {one["name"]: one for one in said if one["in"] == "query"}
        given = dict(parse_qsl(call.query))
        yield from (f"query: {name} is unknown" for name in sorted(given.keys() - known.keys()))
        yield from (
            f"query: {name} is missing" for name, one in known.items() if one.get("required") and name not in given
        )
        content = operation.body.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            if call.sent not in (b"", b"{}"):
                yield "sent: a body is not documented"
            return
        body = json.loads(call.sent or b"null")
        yield from self._invalid(operation, content["schema"], body, "sent")
        properties = content["schema"].get("properties")
        if properties and isinstance(body, dict):
            yield from (f"sent: {name} is unknown" for name in sorted(body.keys() - properties.keys()))

    def _about_answer(self, operation: Operation, call: Exchange) -> Iterator[str]:
        answer = self.answer(operation, call.status)
        if answer is None:
            yield f"answered: {call.status} is not documented"
            return
        for content in answer.get("content", {}).values():
            if "schema" in content:
                body = json.loads(call.answered)
                yield from self._invalid(operation, content["schema"], body, f"answered {call.status}")
                return
        if call.answered:
            yield f"answered {call.status}: a body is not documented"

    def _invalid(self, operation: Operation, schema: Any, body: Any, where: str) -> Iterator[str]:
        # References in the schema are relative to its document.
        schema = json.loads(json.dumps(schema).replace('"$ref": "#', f'"$ref": "{operation.uri}#'))
        for error in Draft202012Validator(schema, registry=self._registry).iter_errors(body):
            place = ".".join("[]" if isinstance(part, int) else str(part) for part in error.absolute_path)
            yield f"{where}: {place}: {error.message[:160]}"

    def examples(self, method: str, path: str, status: int = 200) -> list[Any]:
        """The documented answers of an operation: its examples, or else what its schema's parts spell out."""
        (operation,) = self.fitting(method, path)
        content = self.answer(operation, status)["content"]["application/json"]
        said = [one["value"] for one in content.get("examples", {}).values()]
        said += [content["example"]] if "example" in content else []
        return said or [self._spelled(operation, content["schema"])]

    def _spelled(self, operation: Operation, schema: Any) -> Any:
        """The example that the parts of a schema make; what has none is left out as None."""
        schema = self.resolved(operation, schema)
        if "example" in schema:
            return schema["example"]
        if "examples" in schema:
            return schema["examples"][0]
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        parts: dict[str, Any] = {}
        for one in schema.get("allOf", []):
            spelled = self._spelled(operation, one)
            if not isinstance(spelled, dict):
                return spelled
            parts |= spelled
        parts |= {name: self._spelled(operation, one) for name, one in schema.get("properties", {}).items()}
        if "items" in schema:
            return [self._spelled(operation, schema["items"])]
        if isinstance(schema.get("additionalProperties"), dict) and "properties" not in schema:
            return {"example": self._spelled(operation, schema["additionalProperties"])}
        for one in (*schema.get("anyOf", []), *schema.get("oneOf", [])):
            if (spelled := self._spelled(operation, one)) is not None:
                return spelled
        return parts or None


@functools.cache
def documents(cloud: str) -> Documents:
    return Documents(cloud)


def _modern(node: Any) -> Any:
    """An OpenAPI 3.0 document as JSON Schema: `nullable` is a second type."""
    if isinstance(node, list):
        return [_modern(one) for one in node]
    if not isinstance(node, dict):
        return node
    changed = {key: _modern(one) for key, one in node.items()}
    if changed.get("nullable") is True and isinstance(changed.get("type"), str):
        changed["type"] = [changed["type"], "null"]
        if "enum" in changed:
            changed["enum"] = [*changed["enum"], None]
    return changed
