"""Generated calls of every operation that the API describes: whatever is sent, it is no error of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.agent.api.app import Api
from bot.agent.api.description import description
from tests.agent.api.chat_stub import chat_server

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


@pytest.fixture
async def chatting(
    api: Api, caller: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A caller of a machine with a model server, on which generated commands find one program."""
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/true").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    async with chat_server(api.folder):
        yield caller


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_call_is_an_error_of_ours(chatting: httpx.AsyncClient, data: st.DataObject) -> None:
    method, path = data.draw(st.sampled_from(OPERATIONS))
    query = data.draw(st.dictionaries(NAMES, TEXTS, max_size=4))
    body: dict[str, Any] = {"json": data.draw(COMMANDS | JSON)} if method == "post" else {}
    if data.draw(st.booleans()) and body:
        body = {"content": data.draw(st.binary(max_size=200))}
    filled = path.replace("{path}", "".join(f"%{one:02x}" for one in data.draw(TEXTS).encode(errors="replace")))
    params = {name: value.encode(errors="replace").decode(errors="replace") for name, value in query.items()}
    reply = await chatting.request(method, filled.removeprefix("/node/v1/"), params=params, **body)
    assert reply.status_code < 500, reply.text
    if reply.status_code >= 400 and "chat" not in path:  # There it may be the local server's own error.
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["detail"]
