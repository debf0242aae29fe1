"""Serve `/api/{method}`: read a call in every encoding, check it, and answer as the Web API does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bot.practice.faults import SlackFault
from bot.practice.limits import TooManyRequests
from bot.practice.model import ApiError, Json, invalid_arguments
from bot.practice.web_api.catalog import METHODS, Method
from bot.practice.workspace import Workspace

# Bolt's client adds the workspace's id to every call.
COMMON: Final = frozenset({"team_id"})


class BrokenReply(Response):
    """Break a reply off after its headers, so that the caller cannot know whether anything happened."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Promise a body and never send it; the server then closes the connection."""
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


class WebApi:
    """The Web API of one workspace. One instance serves every method."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def answer(self, request: Request) -> Response:
        """Answer one call: HTTP 200 with `ok`, or 429."""
        name = request.path_params["method"]
        workspace = self._workspace
        fault = workspace.faults.take("api", name)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        arguments: Json = {}
        status = 200
        headers: dict[str, str] = {}
        try:
            method = METHODS.get(name)
            if method is None:
                raise ApiError("unknown_method", req_method=name)
            arguments = await _arguments(request, method)
            _before(fault)
            body = {"ok": True, **self._call(request, name, method, arguments)}
        except TooManyRequests as refusal:
            status, headers = 429, {"Retry-After": str(refusal.retry_after_s)}
            body = {"ok": False, "error": refusal.code}
        except ApiError as refusal:
            status = int(refusal.extra.pop("http_status", 200))
            body = {"ok": False, "error": refusal.code, **refusal.extra}
        workspace.record("api", name, _shown(arguments), body, status)
        if fault is not None and fault.kind == "lose_reply":
            return BrokenReply()
        scopes = workspace.manifest.scopes
        headers["X-OAuth-Scopes"] = ",".join(sorted(scopes or ()))
        return JSONResponse(body, status, headers)

    def _call(self, request: Request, name: str, method: Method, arguments: Json) -> Json:
        workspace = self._workspace
        self._authenticate(request, method, arguments)
        if workspace.strict_api:
            _judge(workspace, request, method, arguments)
        missing = [key for key in method.required if arguments.get(key) in (None, "")]
        if missing:
            raise invalid_arguments([f"missing required field: {key}" for key in missing])
        workspace.limits.method(name, method.tier)
        return method.handler(workspace, arguments)

    def _authenticate(self, request: Request, method: Method, arguments: Json) -> None:
        header = request.headers.get("authorization", "")
        in_arguments = arguments.pop("token", None)
        token = header.removeprefix("Bearer ").strip() if header else in_arguments
        if not token:
            raise ApiError("not_authed")
        workspace = self._workspace
        if token not in {workspace.bot_token, workspace.app_token}:
            raise ApiError("invalid_auth")
        wanted = workspace.bot_token if method.caller == "bot" else workspace.app_token
        if token != wanted:
            raise ApiError("not_allowed_token_type")


def _before(fault: SlackFault | None) -> None:
    """Apply the faults that stop a call before it has any effect."""
    if fault is None:
        return
    if fault.kind == "http_500":
        raise ApiError("internal_error", http_status=500)
    if fault.kind == "rate_limited":
        raise TooManyRequests(max(1, round(fault.seconds)))
    if fault.kind == "error":
        raise ApiError(fault.error)


def _judge(workspace: Workspace, request: Request, method: Method, arguments: Mapping[str, Any]) -> None:
    """Check what a lenient stand-in would accept: a wrong verb, a missing scope, unknown arguments."""
    if request.method == "GET" and not method.reads:
        raise ApiError("invalid_http_method", needed="POST", provided="GET")
    granted = workspace.manifest.scopes
    if granted is not None and method.scopes and not granted.intersection(method.scopes):
        raise ApiError("missing_scope", needed=method.scopes[0], provided=",".join(sorted(granted)))
    unknown = sorted(set(arguments) - method.arguments - COMMON)
    if unknown:
        raise invalid_arguments([f"unknown argument: {key}" for key in unknown])


async def _arguments(request: Request, method: Method) -> Json:
    """Merge query string and body; the body wins. Raises `ApiError` for a body that cannot be read."""
    arguments: Json = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if request.method != "POST" or not kind:
        return arguments
    if kind == "application/json":
        body = await request.body()
        try:
            data = json.loads(body) if body else {}
        except ValueError:
            raise ApiError("invalid_json") from None
        if not isinstance(data, dict):
            raise ApiError("json_not_object")
        # Methods that read ignore a JSON body, so its arguments do not count.
        return arguments if method.reads else {**arguments, **data}
    if kind in {"application/x-www-form-urlencoded", "multipart/form-data"}:
        form = await request.form()
        return {**arguments, **{key: value for key, value in form.items() if isinstance(value, str)}}
    if await request.body():
        raise ApiError("invalid_post_type")
    return arguments


def _shown(arguments: Mapping[str, Any]) -> Json:
    """Return the arguments without the token, for the raw log."""
    return {key: value for key, value in arguments.items() if key != "token"}
