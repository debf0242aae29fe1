"""Refusals as application/problem+json (RFC 9457): a stable code, and the same sentence that Slack shows."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from bot.services.market.offer_fields import Code, Sentence
from bot.services.runtime.commands import Reply

MEDIA_TYPE = "application/problem+json"
CODE_PREFIX = "urn:gpu-shopper:error:"

#: What a code means to an HTTP client; every other refusal is 422: the call was read, and it cannot be done as it is.
STATUS: dict[str, int] = {
    "unauthenticated": 401,
    "scope_missing": 403,
    "not_yours": 403,
    "cloud_not_allowed": 403,
    "gpu_not_allowed": 403,
    "requester": 403,
    "not_an_approver": 403,
    "delegator_asked": 403,
    "bot": 403,
    "unknown_id": 404,
    "unknown_key": 404,
    "unknown_budget": 404,
    "not_ours": 409,
    "not_set_up": 409,
    "cloud_failed": 503,
    "unknown_webhook": 404,
    "unknown_delivery": 404,
    "unknown_profile": 404,
    "no_key": 404,
    "no_session": 409,
    "already_ending": 409,
    "already_asked": 409,
    "not_running": 409,
    "no_node_api": 409,
    "already_voted": 409,
    "already_approved": 409,
    "already_rejected": 409,
    "already_cancelled": 409,
    "already_expired": 409,
    "already_unavailable": 409,
    "idempotency_mismatch": 409,
    "other_offer": 409,
    "other_owner": 409,
    "override_first": 409,
    "quote_moved": 409,
    "replayed": 409,
    "quoting": 409,
    "stale": 409,
    "reachable": 409,
    "still_shown": 409,
    "still_heard": 409,
    "too_many_keys": 409,
    "too_many_webhooks": 409,
    "webhook_off": 409,
    "too_many_streams": 429,
    "too_many_open": 409,
    "rate_limited": 429,
    "no_clouds": 503,
    "delegator_unknown": 503,
}


log = logging.getLogger(__name__)


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str = Field(description="The field that is wrong, such as resources.gpu.count.")
    sentence: Sentence


class Problem(BaseModel):
    """A refusal. `code` is stable; `detail` is the sentence that every door shows for it."""

    model_config = ConfigDict(json_schema_extra={"description": "application/problem+json, RFC 9457"})

    type: str = Field(
        description="A URI that names the kind of problem.", examples=["urn:gpu-shopper:error:unknown_id"]
    )
    title: str = Field(description="What it is, in a few words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong and what to do, for people.")
    code: Code
    fields: list[FieldProblem] = Field(default=[], description="What is wrong with each field.")
    data: dict[str, str] = Field(default={}, description="Further facts, by name.")


class Refused(Exception):
    """Ends a call with a refusal; `fields` names what was wrong in the body."""

    def __init__(self, reply: Reply, *, fields: list[FieldProblem] | None = None) -> None:
        super().__init__(reply.sentence)
        self.reply = reply
        self.fields = fields or []


def problem(reply: Reply, fields: list[FieldProblem] | None = None, headers: dict[str, str] | None = None) -> Any:
    """The response of a refusal."""
    status = STATUS.get(reply.code, 422)
    body = Problem(
        type=f"{CODE_PREFIX}{reply.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=reply.sentence,
        code=reply.code,
        fields=fields or [],
        data={name: str(value) for name, value in reply.data.items() if value is not None},
    )
    return JSONResponse(body.model_dump(mode="json"), status, headers, MEDIA_TYPE)


def broken(scope: Mapping[str, Any], error: Exception) -> Any:
    """The response to an error of ours: it names an incident, and the log alone says what happened."""
    incident = secrets.token_hex(4)
    log.error("incident %s: %s %s failed", incident, scope["method"], scope["path"][:200], exc_info=error)
    body = Problem(
        type=f"{CODE_PREFIX}internal",
        title="Internal Server Error",
        status=500,
        detail=f"Something went wrong here; it is noted as incident {incident}.",
        code="internal",
    )
    return JSONResponse(body.model_dump(mode="json"), 500, media_type=MEDIA_TYPE)


async def _broken(request: Request, error: Exception) -> Any:
    return broken(request.scope, error)


async def _refused(_request: Request, error: Exception) -> Any:
    assert isinstance(error, Refused)  # noqa: S101 # Registered for this type alone.
    return problem(error.reply, error.fields)


async def _invalid(_request: Request, error: Exception) -> Any:
    assert isinstance(error, RequestValidationError)  # noqa: S101 # Registered for this type alone.
    fields = [FieldProblem(field=_place(one["loc"]), sentence=_said(one["msg"])) for one in error.errors()[:20]]
    first = fields[0] if fields else FieldProblem(field="", sentence="It cannot be read.")
    where = f"{first.field}: " if first.field else ""
    return problem(Reply(False, "invalid", f"The call is not what this route takes. {where}{first.sentence}"), fields)


def _said(message: str) -> str:
    """A sentence of a validator; our own come with a mark of the library before them and a full stop after them."""
    return f"{message.removeprefix('Value error, ').rstrip('.')}."


def _place(location: tuple[int | str, ...]) -> str:
    """`resources.gpu.count` for a field of the body, the bare name for a parameter."""
    return ".".join(str(part) for part in location if part not in ("body", "query", "path", "header"))[:200]


async def _http(request: Request, error: Exception) -> Any:
    assert isinstance(error, HTTPException)  # noqa: S101 # Registered for this type alone.
    if error.status_code == HTTPStatus.BAD_REQUEST:
        sentence = "The call is not what this route takes. The body must be JSON in UTF-8."
        return problem(Reply(False, "invalid", sentence))
    phrase = HTTPStatus(error.status_code).phrase
    code = "body_too_large" if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else phrase.lower()
    detail = f"{phrase}; the routes are in /openapi.json." if error.detail in (phrase, "") else error.detail
    code = code.replace(" ", "_").replace("-", "_")
    body = Problem(
        type=f"{CODE_PREFIX}{code}",
        title=phrase,
        status=error.status_code,
        detail=detail,
        code=code,
    )
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(request))
    return JSONResponse(body.model_dump(mode="json"), error.status_code, headers, MEDIA_TYPE)


def _methods(request: Request) -> list[str]:
    """Every method of the path that was asked; the framework names those of the first route only."""
    routes: list[APIRoute] = request.app.state.routes
    return sorted({name for one in routes if one.path_regex.match(request.url.path) for name in one.methods or ()})


def install(api: FastAPI) -> None:
    """Answer every refusal of an application in this one shape."""
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    api.add_exception_handler(Exception, _broken)
