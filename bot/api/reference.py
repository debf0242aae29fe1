"""Serve `/docs`: the routes on one page, made from the OpenAPI document, without scripts and outside resources.

The framework's own pages load their code from a public server. An installation without internet access, or with a
strict content policy, cannot do that.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bot.api.dependencies import SCOPE_FIELD
from bot.shared_read import SharedRead

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1d1c1d}"
    "h1{font-size:1.6rem}h2{font-size:1.1rem;margin-top:2rem}details{border:1px solid #ddd;border-radius:6px;"
    "margin:.4rem 0;padding:.4rem .8rem}summary{cursor:pointer}code{font:13px ui-monospace,monospace}"
    "b.m{display:inline-block;min-width:4.2rem}table{border-collapse:collapse;margin:.5rem 0}"
    "td,th{border:1px solid #ddd;padding:.2rem .6rem;text-align:left;vertical-align:top}.s{color:#555}"
    "@media(prefers-color-scheme:dark){body{background:#1a1d21;color:#ddd}details,td,th{border-color:#444}.s{color:#aaa}}"
)
#: The page may load nothing but its own style.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


#: Code inside a text, as in Markdown.
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A page as it is sent: as it is, and compressed."""

    plain: bytes
    compressed: bytes

    @classmethod
    def of(cls, content: str) -> _Bytes:
        plain = content.encode()
        return cls(plain, gzip.compress(plain, mtime=0))


class OpenPages:
    """Serve `/docs` and `/openapi.json` to anybody, as bytes that are made once, in a thread, by the first call."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document
        self._read = SharedRead(self._run)
        self._latest: tuple[_Bytes, _Bytes] | None = None

    async def docs(self, request: Request) -> Response:
        """Serve the page."""
        page_bytes, _ = await self._pages()
        return _response(request, page_bytes, "text/html; charset=utf-8", {"Content-Security-Policy": POLICY})

    async def openapi(self, request: Request) -> Response:
        """Serve the document."""
        _, document_bytes = await self._pages()
        return _response(request, document_bytes, "application/json", {})

    async def _pages(self) -> tuple[_Bytes, _Bytes]:
        return self._latest or await self._read()

    async def _run(self) -> tuple[_Bytes, _Bytes]:
        self._latest = await asyncio.to_thread(self._make)
        return self._latest

    def _make(self) -> tuple[_Bytes, _Bytes]:
        document = self._document()
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return _Bytes.of(page(document)), _Bytes.of(text)


def _response(request: Request, content: _Bytes, media_type: str, headers: dict[str, str]) -> Response:
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = {**headers, "Content-Encoding": "gzip"}
        return Response(content.compressed, media_type=media_type, headers={**headers, "Vary": "Accept-Encoding"})
    return Response(content.plain, media_type=media_type, headers={**headers, "Vary": "Accept-Encoding"})


def _text(said: object) -> str:
    """Return text as escaped HTML, with code where it has backticks."""
    return _CODE.sub(r"<code>\1</code>", escape(str(said)))


def page(document: dict[str, Any]) -> str:
    """Return the whole page as HTML."""
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            noun = str((operation.get("tags") or ["health"])[0])
            groups.setdefault(noun, []).append(_operation(method.upper(), path, operation, document))
    said = "".join(f"<p>{_text(part)}</p>" for part in document["info"]["description"].split("\n\n"))
    body = "".join(f"<h2>{escape(noun)}</h2>{''.join(rows)}" for noun, rows in groups.items())
    title = escape(f"{document['info']['title']} API")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{said}"
        f"<p>All of it: <a href=/openapi.json>/openapi.json</a> (OpenAPI {escape(document['openapi'])}).</p>"
        f"{body}{_documents(document)}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    scope = operation.get(SCOPE_FIELD, "")
    text = str(operation.get("description") or operation.get("summary") or "")
    named = f"<b class=m>{method}</b> <code>{escape(path)}</code> <span class=s>{escape(scope)}</span>"
    parts = [f"<p>{_text(text)}</p>"]
    fields = [
        (one["name"], one["in"], _kind(one.get("schema", {})), _meaning(one)) for one in operation.get("parameters", ())
    ]
    content = operation.get("requestBody", {}).get("content", {})
    for media in content.values():
        fields += [(name, "body", kind, said) for name, kind, said in _fields(media.get("schema", {}), document)]
    if fields:
        parts.append(_table(("field", "in", "type", "meaning"), fields))
    answers = [(code, one.get("description", ""), _given(one)) for code, one in operation.get("responses", {}).items()]
    parts.append(_table(("answer", "meaning", "holds"), answers))
    return f"<details><summary>{named}</summary>{''.join(parts)}</details>"


def _given(answer: dict[str, Any]) -> str:
    """Name the kinds of document that an answer holds."""
    return ", ".join(_kind(media.get("schema", {})) for media in answer.get("content", {}).values())


def _documents(document: dict[str, Any]) -> str:
    """List every kind of document with its fields: what callers send and receive."""
    shown = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        fields = _fields(schema, document)
        said = _text(schema.get("description", ""))
        table = _table(("field", "type", "meaning"), fields) if fields else ""
        title = f"<summary><code>{escape(name)}</code></summary>"
        shown.append(f"<details id='{escape(name)}'>{title}<p>{said}</p>{table}</details>")
    return f"<h2>documents</h2>{''.join(shown)}"


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the fields of a body, from the schema that it refers to."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found = document["components"]["schemas"].get(name, schema)
    return [(key, _kind(one), _meaning(one)) for key, one in found.get("properties", {}).items()]


def _meaning(field: dict[str, Any]) -> str:
    return str(field.get("description") or field.get("schema", {}).get("description", ""))


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    top = "".join(f"<th>{escape(cell)}" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}' for cell in row)}" for row in rows)
    return f"<table><tr>{top}{body}</table>"
