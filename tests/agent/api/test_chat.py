"""The chat proxy: it passes on and streams what the local server answers, and says so when there is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bot.agent.api.app import Api
from tests.support.serving import serving


@dataclass
class LocalServer:
    """An OpenAI-compatible server that answers as OpenAI's documentation shows, a token at a time when asked."""

    bodies: list[Any] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if body.get("model") == "unknown":
            return JSONResponse({"error": {"message": "The model `unknown` does not exist"}}, 404)
        if body.get("model") == "breaks":
            return JSONResponse({"error": {"message": "out of memory"}}, 500)
        if body.get("model") == "thinks":
            while not await request.is_disconnected():  # noqa: ASYNC110 # Starlette has no event for it.
                await asyncio.sleep(0.01)
            self.left.set()
        if body.get("stream"):
            return StreamingResponse(self._tokens(), media_type="text/event-stream")
        return JSONResponse({"choices": [{"message": {"role": "assistant", "content": "Hello"}}]})

    async def _tokens(self) -> AsyncIterator[bytes]:
        try:
            yield b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'
            await self.more.wait()
            yield b'data: {"choices": [{"delta": {"content": "lo"}}]}\n\n'
            yield b"data: [DONE]\n\n"
        finally:
            self.left.set()

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self.chat, methods=["POST"])])


@pytest.fixture
async def local(api: Api) -> AsyncIterator[LocalServer]:
    server = LocalServer()
    async with serving(server.app()) as url:
        (api.folder / "serve.json").write_text(json.dumps({"port": int(url.rpartition(":")[2]), "model": "org/name"}))
        yield server


async def test_an_answer_is_passed_on(caller: httpx.AsyncClient, local: LocalServer) -> None:
    body = {"model": "org/name", "messages": [{"role": "user", "content": "Hi"}]}
    reply = await caller.post("llm/chat", json=body)
    assert reply.json()["choices"][0]["message"]["content"] == "Hello"
    assert local.bodies == [body]
    refused = await caller.post("llm/chat", json={"model": "unknown"})
    assert (refused.status_code, "does not exist" in refused.text) == (404, True)


async def test_tokens_come_as_they_are_made(caller: httpx.AsyncClient, local: LocalServer) -> None:
    async with caller.stream("POST", "llm/chat", json={"stream": True}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        chunks = reply.aiter_text()
        assert "Hel" in await anext(chunks)  # The server waits for `more` before it sends the rest.
        local.more.set()
        assert "[DONE]" in "".join([one async for one in chunks])


async def test_a_caller_who_leaves_ends_the_work_for_them(caller: httpx.AsyncClient, local: LocalServer) -> None:
    async with caller.stream("POST", "llm/chat", json={"stream": True}) as reply:
        assert "Hel" in await anext(reply.aiter_text())
    async with asyncio.timeout(20):
        await local.left.wait()


@pytest.mark.parametrize("said", ['{"port": 9}', "", "[]", '{"port": "x"}', '{"port": 99999999}', "[" * 100_000])
async def test_without_a_server_it_says_so(api: Api, caller: httpx.AsyncClient, said: str) -> None:
    (api.folder / "serve.json").write_text(said)
    reply = await caller.post("llm/chat", json={})
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
    assert "No server answers on port" in reply.json()["detail"]


async def test_a_huge_body_is_refused(caller: httpx.AsyncClient) -> None:
    assert (await caller.post("llm/chat", content=b" " * (33 << 20))).status_code == 413


async def test_a_caller_who_leaves_before_the_answer_ends_the_work_too(
    caller: httpx.AsyncClient, local: LocalServer
) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await caller.post("llm/chat", json={"model": "thinks"}, timeout=0.3)
    async with asyncio.timeout(20):
        await local.left.wait()


async def test_an_error_of_the_local_server_is_none_of_this_api(caller: httpx.AsyncClient, local: LocalServer) -> None:
    reply = await caller.post("llm/chat", json={"model": "breaks"})
    assert (reply.status_code, reply.json()) == (502, {"error": {"message": "out of memory"}})
