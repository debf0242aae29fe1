"""Answer refusals as application/problem+json (RFC 9457), with a sentence that says what a right call looks like."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

MEDIA_TYPE = "application/problem+json"


class ApiRefusal(Exception):
    """A call that is refused: a status, a sentence, and what a program needs to call again."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None, **data: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.data = status, detail, dict(headers or {}), data


def answer(refusal: ApiRefusal) -> Response:
    """Return the response to a refused call."""
    body = {"type": "about:blank", "title": HTTPStatus(refusal.status).phrase, "status": refusal.status}
    # A detail may repeat what the caller sent, which need not be valid Unicode.
    detail = refusal.detail.encode(errors="replace").decode()
    body |= {"detail": detail} | ({"data": refusal.data} if refusal.data else {})
    return JSONResponse(body, refusal.status, refusal.headers, MEDIA_TYPE)


async def refused(_request: Request, error: Exception) -> Response:
    """Answer a ApiRefusal that a route raised."""
    if not isinstance(error, ApiRefusal):
        raise error
    return answer(error)


async def unknown(_request: Request, error: Exception) -> Response:
    """Answer an unknown path or a wrong method."""
    if not isinstance(error, HTTPException):
        raise error
    sentence = "GET /node/v1/openapi.json lists the paths of this API and their methods."
    return answer(ApiRefusal(error.status_code, sentence, error.headers))


async def out_of_order(_request: Request, error: Exception) -> Response:
    """Answer when the machine does not do what a call needs: its disk is full or broken, or it has no memory."""
    reason = (error.strerror if isinstance(error, OSError) else None) or "no reason given"
    return answer(ApiRefusal(503, f"This machine can't do that now: {reason}.", {"Retry-After": "10"}))
