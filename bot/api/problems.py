"""Answer refusals as application/problem+json (RFC 9457), with a stable code and the sentence that Slack shows."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from bot.api.field_sentences import own_sentence, predicate
from bot.rules.values.reply_code import ReplyCode
from bot.services.market.offer_fields import Code, Sentence
from bot.services.runtime.commands import RETRY_AFTER, Reply

MEDIA_TYPE = "application/problem+json"
CODE_PREFIX = "urn:gpu-shopper:error:"

_C = ReplyCode
#: The HTTP status of each code; every other refusal is 422: the call was read, and it cannot be carried out as it is.
_CODES: Mapping[int, tuple[ReplyCode, ...]] = {
    401: (_C.UNAUTHENTICATED,),
    403: (
        _C.BOT, _C.CLOUD_NOT_ALLOWED, _C.DELEGATOR_REQUESTED, _C.DELETED, _C.GPU_NOT_ALLOWED, _C.GUEST,
        _C.NOT_AN_APPROVER, _C.NOT_YOURS, _C.OTHER_TEAM, _C.REQUESTER, _C.SCOPE_MISSING,
    ),
    404: (
        _C.NO_KEY, _C.NO_SECRET, _C.UNKNOWN_BUDGET, _C.UNKNOWN_DELIVERY, _C.UNKNOWN_ID, _C.UNKNOWN_KEY,
        _C.NOTHING_TO_REPEAT, _C.UNKNOWN_PROFILE, _C.UNKNOWN_TEAM, _C.UNKNOWN_WEBHOOK,
    ),
    409: (
        _C.ALREADY_APPROVED, _C.ALREADY_REQUESTED, _C.ALREADY_CANCELLED, _C.ALREADY_ENDING, _C.ALREADY_EXPIRED,
        _C.ALREADY_REJECTED, _C.ALREADY_UNAVAILABLE, _C.ALREADY_VOTED, _C.CANNOT_MIGRATE, _C.IDEMPOTENCY_MISMATCH,
        _C.LAUNCHED, _C.MIGRATING, _C.NOTHING_CHEAPER, _C.NOT_IN_ADVANCE, _C.NOT_OLDER, _C.NOT_OURS, _C.NOT_READY,
        _C.NOT_RUNNING, _C.NOT_SET_UP, _C.NO_HOST_KEY, _C.NO_REPLACEMENT, _C.NO_LIMIT, _C.NO_NODE_API, _C.NO_SESSION,
        _C.NO_SSH, _C.OTHER_OFFER, _C.OTHER_OWNER, _C.OVERRIDE_FIRST, _C.QUOTE_MOVED, _C.QUOTING, _C.REACHABLE,
        _C.REPLAYED, _C.STALE, _C.STILL_REPORTS, _C.STILL_SHOWN, _C.TOO_MANY_KEYS, _C.TOO_MANY_OPEN,
        _C.TOO_MANY_WEBHOOKS, _C.VOLUME_ELSEWHERE, _C.VOLUME_IN_USE, _C.WEBHOOK_OFF,
    ),
    410: (_C.CURSOR_EXPIRED,),
    413: (_C.BODY_TOO_LARGE,),
    429: (_C.RATE_LIMITED, _C.TOO_MANY_REQUESTS, _C.TOO_MANY_STREAMS),
    503: (_C.CLOUD_FAILED, _C.DELEGATOR_UNKNOWN, _C.LOOKUP_FAILED, _C.NO_CLOUDS, _C.RESOLVER_BUSY),
}  # fmt: skip
STATUS = {code: status for status, codes in _CODES.items() for code in codes}


log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=BaseModel)


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str = Field(description="The field that is wrong, such as resources.gpu.count.")
    sentence: Sentence


class Problem(BaseModel):
    """A refusal: `code` is stable, `detail` is the same sentence as in Slack and on the command line."""

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


class ProblemRaised(Exception):
    """End a call with a refusal; `fields` names what was wrong in the body."""

    def __init__(self, reply: Reply, *, fields: list[FieldProblem] | None = None) -> None:
        super().__init__(reply.sentence)
        self.reply = reply
        self.fields = fields or []


def answered(kind: type[Answer], reply: Reply) -> Answer:
    """Return the answer of a command that was carried out; raises `ProblemRaised` for one that was not."""
    if not reply.ok:
        raise ProblemRaised(reply)
    return kind(**{**reply.data, "code": reply.code, "sentence": reply.sentence})


def problem(reply: Reply, fields: list[FieldProblem] | None = None, headers: dict[str, str] | None = None) -> Any:
    """Build the response for a refusal."""
    status = STATUS.get(reply.code, 422)
    data = {name: str(value) for name, value in reply.data.items() if value is not None}
    if RETRY_AFTER in data:
        headers = {**(headers or {}), "Retry-After": data[RETRY_AFTER]}
    return _response(status, reply.code, reply.sentence, headers, fields=fields or [], data=data)


def _response(status: int, code: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    title = HTTPStatus(status).phrase
    body = Problem(type=f"{CODE_PREFIX}{code}", title=title, status=status, detail=detail, code=code, **more)
    return JSONResponse(body.model_dump(mode="json"), status, headers, MEDIA_TYPE)


def broken(scope: Mapping[str, Any], error: Exception) -> Any:
    """Build the response to an internal error: it names an incident, and only the log says what happened."""
    incident = secrets.token_hex(4)
    log.error("incident %s: %s %s failed", incident, scope["method"], scope["path"][:200], exc_info=error)
    return _response(500, ReplyCode.INTERNAL, f"The service failed. Its log has more under incident {incident}.")


async def _broken(request: Request, error: Exception) -> Any:
    return broken(request.scope, error)


async def _refused(_request: Request, error: ProblemRaised) -> Any:
    return problem(error.reply, error.fields)


async def _invalid(_request: Request, error: RequestValidationError) -> Any:
    return problem(*invalid(error.errors()))


def invalid(errors: Sequence[Any]) -> tuple[Reply, list[FieldProblem]]:
    """Describe a value that its model refuses: the first problem as a sentence, and every problem by its field."""
    fields = [FieldProblem(field=_place(one["loc"]), sentence=_said(one)) for one in errors[:20]]
    if not fields:
        return Reply(False, ReplyCode.INVALID, "The call cannot be read."), fields
    where, wrong = fields[0].field, predicate(errors[0])
    if wrong:
        sentence = f"{where or 'The body'} {wrong}."
    else:
        sentence = f"{where}: {fields[0].sentence}" if where else fields[0].sentence
    return Reply(False, ReplyCode.INVALID, sentence), fields


def _said(error: Mapping[str, Any]) -> str:
    wrong = predicate(error)
    return f"It {wrong}." if wrong else own_sentence(error)


#: How the validator names one of several types that a field may have: a class, or a type in brackets.
_ALTERNATIVE = re.compile(r"([A-Z][a-z]+[A-Z]\w*|constrained-\w+|function-.*|(list|dict)\[.*|str)$")


def _place(location: tuple[int | str, ...]) -> str:
    """Return `resources.gpu.count` for a field of the body, and the bare name for a parameter."""
    parts = (str(part) for part in location if part not in ("body", "query", "path", "header"))
    return ".".join(part for part in parts if not _ALTERNATIVE.match(part))[:200]


async def _http(request: Request, error: HTTPException) -> Any:
    if error.status_code == HTTPStatus.BAD_REQUEST:
        sentence = "The body must be JSON in UTF-8."
        return problem(Reply(False, ReplyCode.INVALID, sentence))
    phrase = HTTPStatus(error.status_code).phrase
    code: str = ReplyCode.BODY_TOO_LARGE if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else phrase.lower()
    detail = error.detail if error.detail not in (phrase, "") else f"{phrase}. The page /docs lists every route."
    code = code.replace(" ", "_").replace("-", "_")
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allowed = ", ".join(_methods(request))
        detail = f"This route takes {allowed}, not {request.method}. The page /docs lists every route."
    elif error.status_code == HTTPStatus.NOT_FOUND and error.detail == phrase:
        detail = "There is no such route; most begin with /api/v1. The page /docs lists every route."
    return _response(error.status_code, code, detail, headers)


def _methods(request: Request) -> list[str]:
    """List every method of the requested path; the framework names those of the first route only."""
    routes: list[APIRoute] = request.app.state.routes
    found = [one for one in routes if one.path_regex.match(request.url.path)]
    # A path without a parameter is a resource of its own, also where another route's parameter would match it.
    exact = [one for one in found if one.path == request.url.path]
    return sorted({name for one in exact or found for name in one.methods or ()})


def install(api: FastAPI) -> None:
    """Register the handlers that answer every refusal as application/problem+json."""
    api.exception_handler(ProblemRaised)(_refused)
    api.exception_handler(RequestValidationError)(_invalid)
    api.exception_handler(HTTPException)(_http)
    api.add_exception_handler(Exception, _broken)
