"""Serve `/practice/api/…`: act as somebody and read the state, for the page and for remote drivers.

Every POST takes a JSON object. Unknown people, channels, messages or fields get 404 and a sentence in `error`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from bot.practice import messages
from bot.practice.act import Acts
from bot.practice.faults import SlackFault
from bot.practice.model import ApiError, ChatMessage, Json
from bot.practice.snapshot import raw_log, snapshot
from bot.practice.workspace import Workspace

LONG_POLL_MAX_S: Final = 25.0
HEARTBEAT_S: Final = 15.0
Verb = Callable[[Json], Awaitable[Json]]

#: Verb → the act, the texts that it needs (some with a default), and what else may be said.
ACTS: Final[Mapping[str, tuple[Callable[..., Awaitable[Any]], tuple[str, ...], tuple[str, ...]]]] = {
    "command": (Acts.command, ("as", "text", "channel=#gpu"), ("thread_ts",)),
    "say": (Acts.say, ("as", "text", "channel=#gpu"), ("thread_ts",)),
    "click": (Acts.click, ("as", "channel", "ts", "what"), ("value", "block_id", "version")),
    "view_click": (Acts.click_in_view, ("as", "view_id", "what"), ("value", "values")),
    "submit": (Acts.submit, ("as", "view_id"), ("values",)),
    "close": (Acts.close, ("as", "view_id"), ("everything",)),
    "home": (Acts.open_home, ("as",), ()),
}


class PageApi:
    """Serve the endpoints of one workspace."""

    def __init__(self, workspace: Workspace, acts: Acts) -> None:
        self._workspace = workspace
        self._acts = acts

        self.verbs: Mapping[str, Verb] = {
            **{verb: partial(self._act, verb) for verb in ACTS},
            "travel": self._travel,
            "fault": self._fault,
            "delete_message": self._delete_message,
        }

    def routes(self) -> list[BaseRoute]:
        """Return what to mount under `/practice/api`."""
        return [
            Route("/state", self._state),
            Route("/log", self._log),
            Route("/events", self._events),
            *(Route(f"/{name}", _endpoint(verb), methods=["POST"]) for name, verb in self.verbs.items()),
        ]

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    async def _state(self, request: Request) -> Response:
        query = request.query_params
        try:
            viewer = self._workspace.user(query["as"]).id if query.get("as") else None
            after, wait_s = int(query.get("after", "-1")), float(query.get("wait_s", "0"))
        except (LookupError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 404)
        if wait_s > 0:
            await self._workspace.signal.wait(after, min(wait_s, LONG_POLL_MAX_S))
        return JSONResponse(snapshot(self._workspace, viewer))

    async def _log(self, request: Request) -> Response:
        after = request.query_params.get("after", "0")
        return JSONResponse(raw_log(self._workspace, int(after) if after.isdigit() else 0))

    async def _events(self, _request: Request) -> Response:
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        """Stream the newest version's number after each change as server-sent events, and a comment while quiet."""
        signal = self._workspace.signal
        seen = signal.version
        yield f"data: {json.dumps({'version': seen})}\n\n"
        while not signal.closed:
            version = await signal.wait(seen, HEARTBEAT_S)
            yield ": quiet\n\n" if version == seen else f"data: {json.dumps({'version': version})}\n\n"
            seen = version

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def _act(self, verb: str, body: Json) -> Json:
        act, texts, others = ACTS[verb]
        said = [_text(body, name, default or None) for name, _, default in (text.partition("=") for text in texts)]
        done = await act(self._acts, *said, **{name: body[name] for name in others if body.get(name) is not None})
        return {"ok": True, "message": done.to_state()} if isinstance(done, ChatMessage) else done.to_state()

    async def _travel(self, body: Json) -> Json:
        await self._workspace.travel(float(body.get("seconds", 0)))
        return {"ok": True, "now": self._workspace.clock.now().timestamp()}

    async def _fault(self, body: Json) -> Json:
        self._workspace.faults.add(SlackFault(**body))
        return {"ok": True}

    async def _delete_message(self, body: Json) -> Json:
        channel = self._workspace.channel(_text(body, "channel"))
        message = self._workspace.find_message(channel.id, _text(body, "ts"))
        if message is None:
            raise LookupError(f"there is no message {body['ts']} in #{channel.name}")
        messages.delete(self._workspace, message)
        return {"ok": True}


def _text(body: Json, name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name!r} is missing: send it as text")
    return value


def _endpoint(verb: Verb) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            # Only a script of our own origin can send JSON; a foreign form cannot.
            return JSONResponse({"error": "send a JSON object with content-type application/json"}, 415)
        try:
            body: Any = json.loads(await request.body())
            if not isinstance(body, dict):
                raise TypeError("send a JSON object")
            return JSONResponse(await verb(body))
        except LookupError as error:
            return JSONResponse({"error": str(error.args[0])}, 404)
        except (ValueError, TypeError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except ApiError as error:
            return JSONResponse({"error": error.code}, 400)

    return endpoint
