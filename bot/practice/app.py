"""Serve the practice workspace as one ASGI program, and hold its parts together."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from bot.practice.act import Acts
from bot.practice.dispatch import Courier
from bot.practice.driver import Driver
from bot.practice.model import ApiError
from bot.practice.page import LoopbackOnly, static_files
from bot.practice.page_api import PageApi
from bot.practice.response_url import respond
from bot.practice.server import serve_on_loopback
from bot.practice.socket_mode import SocketHub
from bot.practice.web_api import files
from bot.practice.web_api.calls import WebApi
from bot.practice.workspace import Workspace


class Practice:
    """One workspace and its parts: `app` to serve, `driver` to act, `courier` and `hub` to look inside."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.hub = SocketHub(workspace.changed)
        self.courier = Courier(workspace, self.hub)
        self.acts = Acts(workspace, self.courier)
        self.driver = Driver(workspace, self.acts)
        self.app = self._build()

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        """Serve on 127.0.0.1 and yield the base URL, such as `http://127.0.0.1:4711`; port 0 picks a free one."""
        async with serve_on_loopback(self.app, port) as base_url:
            self.workspace.base_url = base_url
            try:
                yield base_url
            finally:
                self.workspace.close()
                await self.courier.aclose()

    @property
    def api_url(self) -> str:
        """Return what an app takes as its SLACK_API_URL."""
        return f"{self.workspace.base_url}/api/"

    def _build(self) -> Starlette:
        page_api = PageApi(self.workspace, self.acts)
        routes = [
            Route("/api/{method}", WebApi(self.workspace).answer, methods=["GET", "POST"]),
            Route("/response/{token}", self._respond, methods=["POST"]),
            Route("/upload/{token}", self._upload, methods=["POST", "PUT"]),
            Route("/practice/files/{file_id}", self._file),
            WebSocketRoute("/socket", self._socket),
            Mount("/practice/api", routes=page_api.routes()),
            Mount("/", app=static_files()),
        ]
        return Starlette(
            routes=routes, middleware=[Middleware(LoopbackOnly), Middleware(_LearnBaseUrl, self.workspace)]
        )

    async def _respond(self, request: Request) -> Response:
        token = request.path_params["token"]
        kind = request.headers.get("content-type", "").partition(";")[0]
        body: Any = {}
        try:
            body = dict(await request.form()) if kind != "application/json" else json.loads(await request.body())
            if "payload" in body:
                body = json.loads(body["payload"])
            if not isinstance(body, dict):
                raise ApiError("invalid_payload", http_status=400)
            answer, status = respond(self.workspace, token, body), 200
        except ValueError:
            answer, status = {"ok": False, "error": "invalid_payload"}, 400
        except ApiError as refusal:
            status = int(refusal.extra.pop("http_status", 400))
            answer = {"ok": False, "error": refusal.code, **refusal.extra}
        self.workspace.record("response_url", "response_url", {"body": body}, answer, status)
        return PlainTextResponse("ok") if status == 200 else JSONResponse(answer, status)

    async def _upload(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0]
        content = b""
        if kind == "multipart/form-data":
            for part in (await request.form()).values():
                content = part.encode() if isinstance(part, str) else await part.read()
        else:
            content = await request.body()
        received = files.receive(self.workspace, request.path_params["token"], content)
        return PlainTextResponse(f"OK - {len(content)}") if received else PlainTextResponse("no such upload", 404)

    async def _file(self, request: Request) -> Response:
        file = self.workspace.files.get(request.path_params["file_id"])
        if file is None or not file.completed:
            return PlainTextResponse("there is no such file", 404)
        return Response(file.content, media_type=file.mimetype)

    async def _socket(self, socket: WebSocket) -> None:
        await self.hub.serve(socket)


class _LearnBaseUrl:
    """Set the workspace's base URL from the first request when it is not set."""

    def __init__(self, app: Any, workspace: Workspace) -> None:
        self._app = app
        self._workspace = workspace

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read the Host of a request and pass it on."""
        if not self._workspace.base_url and scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            self._workspace.base_url = f"http://{host}"
        await self._app(scope, receive, send)
