"""Generated calls of every operation that the API describes: whatever is sent, it is no error of ours."""

from __future__ import annotations

from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.agent.api.description import description

OPERATIONS = [(method, path) for path, methods in description()["paths"].items() for method in methods]
TEXTS = st.one_of(
    st.sampled_from(["", "a", "a/b", "../a", "true", "0", "-1", "job", "start", "stop", "c1"]), st.text(max_size=20)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
COMMANDS = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["c1", "c2"]) | TEXTS,
        "command": st.sampled_from(["start", "pause", "resume", "save", "stop"]),
    },
    optional={"argv": st.just(["true"]) | JSON, "env": JSON, "cwd": TEXTS, "job": st.booleans() | JSON},
)
NAMES = st.sampled_from(["path", "size", "sha256", "offset", "checksum", "source", "command", "tail"])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_call_is_an_error_of_ours(caller: httpx.AsyncClient, data: st.DataObject) -> None:
    method, path = data.draw(st.sampled_from(OPERATIONS))
    query = data.draw(st.dictionaries(NAMES, TEXTS, max_size=4))
    body: dict[str, Any] = {"json": data.draw(COMMANDS | JSON)} if method == "post" else {}
    if data.draw(st.booleans()) and body:
        body = {"content": data.draw(st.binary(max_size=200))}
    filled = path.replace("{path}", "".join(f"%{one:02x}" for one in data.draw(TEXTS).encode(errors="replace")))
    params = {name: value.encode(errors="replace").decode(errors="replace") for name, value in query.items()}
    reply = await caller.request(method, filled.removeprefix("/node/v1/"), params=params, **body)
    assert reply.status_code < 500 or reply.status_code == 503, reply.text
    if reply.status_code >= 400:
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["detail"]
