"""A small OpenAI-compatible server: it answers every call, and a call that is no chat with an error of the caller's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.serving import serving


async def _chat(request: Request) -> Response:
    try:
        asked = json.loads(await request.body())
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        return JSONResponse({"error": {"message": "This is no chat."}}, 400)
    if asked.get("stream"):
        return StreamingResponse(_tokens(), media_type="text/event-stream")
    return JSONResponse({"choices": [{"message": {"role": "assistant", "content": "Hello"}}]})


async def _tokens() -> AsyncIterator[bytes]:
    yield b'data: {"choices": [{"delta": {"content": "Hello"}}]}\n\n'
    yield b"data: [DONE]\n\n"


@asynccontextmanager
async def chat_server(folder: Path) -> AsyncIterator[None]:
    """Serve it, and name its port where the agent with this folder looks for one."""
    app = Starlette(routes=[Route("/v1/chat/completions", _chat, methods=["POST"])])
    async with serving(app) as url:
        (folder / "serve.json").write_text(json.dumps({"port": int(url.rpartition(":")[2]), "model": "org/name"}))
        yield
