"""Generate calls of every operation of the OpenAPI document, and send them to the application without a socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any
from urllib.parse import quote, unquote

from tests.api.door import DOCUMENT
from tests.api.generated.arguments import Arguments, Mood, Schema

#: `(method, path, operation)` of everything that is served.
OPERATIONS: Sequence[tuple[str, str, Mapping[str, Any]]] = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
CHECKIN, EVENTS = "/agent/v1/checkin", "/api/v1/events"
BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"
#: Bodies that are no JSON, or JSON that readers stumble over.
BROKEN: Sequence[bytes] = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b'{"hours": NaN}',
    b'{"reason": "\xed\xa0\x80"}',
    b'{"reason": "\\ud800", "reason": "\\u0000"}',
    b"[" * 30_000,
    b'{"a":' * 12_000,
    b'{"hours": ' + b"9" * 6_000 + b"}",
    b" " * 70_000,
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it goes over the wire. `probe` is the id in its path that is somebody else's."""

    operation: str
    method: str
    path: str
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    probe: str = ""

    @property
    def said(self) -> str:
        """Everything that the caller sent, so that an answer that repeats it is no news to them."""
        parts = (
            unquote(self.path).encode("utf-8", "replace"),
            unquote(self.query.decode("latin-1")).encode(),
            self.body,
        )
        return b"\n".join((*parts, *(value for _, value in self.headers))).decode("utf-8", "replace")

    def twin(self, rng: Random) -> Call:
        """The same call with an id of the same shape that never existed."""
        kept, mark, rest = self.probe.rpartition(":" if ":" in self.probe else "_")
        made = "".join(rng.choices("0123456789" if rest.isdigit() else BASE32, k=len(rest)))
        made = f"{kept}{mark}{made}"
        return replace(self, path=self.path.replace(quote(self.probe, safe=""), quote(made, safe="")), probe=made)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Things:
    """The ids of what a program has, by the name of the path parameter that takes them."""

    ids: dict[str, list[str]] = field(default_factory=dict)

    def everything(self) -> list[str]:
        """All of them."""
        return [one for ids in self.ids.values() for one in ids]


class Caller:
    """One program that calls: its key, what it has, and what it knows of another program's."""

    def __init__(self, rng: Random, name: str, token: str, numbers: count[int]) -> None:
        self._rng = rng
        self._numbers = numbers
        self._arguments = Arguments(rng, DOCUMENT)
        self.name = name
        self.token = token
        self.node_token = ""
        self.own, self.other = Things(), Things()
        self._repeated = f"{name}-again"

    def knows(self, own: Things, other: Things, names: Sequence[str]) -> None:
        """What there is now; hostile arguments draw from all of it."""
        self.own, self.other = own, other
        self._arguments.ids = [*own.everything(), *other.everything(), *names]

    def call(self, method: str, path: str, operation: Mapping[str, Any]) -> Call:
        """A call of one operation."""
        mood = self._arguments.mood()
        given = operation.get("parameters", ())
        real, probe = path, ""
        for one in given:
            if one["in"] == "path":
                text, theirs = self._path_value(one["name"], mood)
                real, probe = real.replace(f"{{{one['name']}}}", quote(text, safe="", errors="replace")), theirs
        query = self._query([one for one in given if one["in"] == "query"], mood)
        headers = [*self._authorization(path), *self._headers([one for one in given if one["in"] == "header"], mood)]
        body = b""
        if "requestBody" in operation:
            body = self._body(operation["requestBody"]["content"]["application/json"]["schema"], mood)
            headers.append((b"content-type", b"application/json"))
        return Call(f"{method} {path}", method, real, query, tuple(headers), body, probe)

    def _path_value(self, name: str, mood: Mood) -> tuple[str, str]:
        """A value for a path parameter, and the same again where it names something of the other program."""
        if name == "cloud" or self._rng.random() < {Mood.PLAUSIBLE: 0.02}.get(mood, 0.2):
            said = self._arguments.value({}, mood, name)
            return (said if isinstance(said, str) and said else "0"), ""
        theirs = self._rng.random() < 0.4
        known = (self.other if theirs else self.own).ids.get(name) or ["req_0000000000000000"]
        text = self._rng.choice(known)
        if name in ("request", "session") and ":" not in text and self._rng.random() < 0.2:
            text = text[-self._rng.choice((6, 8, 12)) :]
        return text, text if theirs else ""

    def _query(self, given: Sequence[Schema], mood: Mood) -> bytes:
        share = 0.25 if len(given) > 5 else 0.5
        pairs = []
        for one in given:
            if self._rng.random() < share:
                said = self._arguments.value(one.get("schema", {}), mood, one["name"])
                pairs.append((one["name"], said if isinstance(said, str) else json.dumps(said)[:2000]))
        if mood is Mood.HOSTILE and pairs and self._rng.random() < 0.2:
            pairs.append(self._rng.choice([pairs[0], ("unknown", "1"), ("", "")]))
        text = "&".join(f"{quote(name)}={quote(said[:2000], errors='replace')}" for name, said in pairs).encode()
        return text + self._rng.choice((b"", b"&%00=%ff", b"&&=", b"%zz")) if mood is Mood.HOSTILE else text

    def _authorization(self, path: str) -> list[tuple[bytes, bytes]]:
        drawn = self._rng.random()
        token = self.node_token if path == CHECKIN and drawn < 0.7 and self.node_token else self.token
        own = (b"authorization", f"Bearer {token}".encode())
        if drawn > 0.99:
            return []
        return [own, own] if drawn > 0.985 else [own]

    def _headers(self, given: Sequence[Schema], mood: Mood) -> list[tuple[bytes, bytes]]:
        found = []
        for one in given:
            said: Any = f"generated-{next(self._numbers)}"
            if one["name"] != "Idempotency-Key":
                said = self._rng.choice([f"evt_{'0' * 16}", *self.other.ids.get("event", ()), "*", 'W/"x", "y"'])
            elif mood is not Mood.PLAUSIBLE:
                said = self._rng.choice(
                    [said, said, self._repeated, "", "k" * 200, "k" * 201, self._arguments.hostile()]
                )
            if one.get("required") or one["name"] == "Last-Event-ID" or self._rng.random() < 0.5:
                name = one["name"].lower().encode()
                found.append((name, str(said)[:3000].replace("\n", " ").replace("\r", " ").encode("utf-8", "replace")))
        return found

    def _body(self, schema: Schema, mood: Mood) -> bytes:
        if mood is Mood.HOSTILE and self._rng.random() < 0.12:
            return self._rng.choice(BROKEN)
        return json.dumps(self._arguments.value(schema, mood), ensure_ascii=self._rng.random() < 0.9).encode(
            "utf-8", "surrogatepass"
        )


async def send(app: Any, call: Call) -> Answer:
    """Send a call as the HTTP server hands it over; an answer without an end is left after its first part."""
    part, taken = asyncio.Event(), False
    started: dict[str, Any] = {"status": 0, "headers": []}
    pieces: list[bytes] = []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        if not taken:
            taken = True
            return {"type": "http.request", "body": call.body, "more_body": False}
        await part.wait()
        return {"type": "http.disconnect"}

    async def take(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
            return
        pieces.append(bytes(message.get("body", b"")))
        part.set()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": unquote(call.path),
        "raw_path": call.path.encode(),
        "query_string": call.query,
        "root_path": "",
        "headers": [(b"host", b"bot"), (b"content-length", str(len(call.body)).encode()), *call.headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("bot", 80),
    }
    await app(scope, receive, take)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in started["headers"]}
    return Answer(started["status"], headers, b"".join(pieces).decode("utf-8", "replace"))


def without_ids(answer: Answer, identifier: str) -> tuple[int, str]:
    """What an answer says, with an id and the number of an incident left out."""
    text = answer.text.replace(identifier, "ID").replace(identifier.rpartition("_")[2], "ID")
    return answer.status, re.sub(r"incident [0-9a-f]{8}", "incident", text)
