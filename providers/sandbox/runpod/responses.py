"""How RunPod answers: problem documents, request ids, and the three rate windows of one user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import RateWindow, Refused

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)
NO_FREE_GPU = "There are not enough free GPUs on the host machine to start this pod."
LOW_BALANCE = "Your account balance is too low to rent a pod. Please add funds to your account."
SPEND_LIMIT = "This pod would exceed your account's spend limit."
INVALID_KEY = "invalid bearer token"
#: Window → (requests, seconds): the numbers of the documented example.
WINDOWS = {"minute": (60, 60), "hour": (3000, 3600), "day": (50000, 86400)}


def problem(status: int, detail: str, errors: tuple[str, ...] = (), headers: dict[str, str] | None = None) -> Response:
    """An RFC 9457 answer."""
    body: dict[str, Any] = {"title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    return JSONResponse(body, status, headers, media_type="application/problem+json")


class RunPodProblem(Refused):
    """An answer in the RFC 9457 form: `status`, `detail`, and the list `errors` of a 422."""

    def __init__(self, status: int, detail: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__(problem(status, detail, errors))
        self.status, self.detail, self.errors = status, detail, errors


def rate_headers(windows: Iterable[RateWindow], now_s: float) -> dict[str, str]:
    """`RateLimit-Policy` and `RateLimit` as of now."""
    policy, state = [], []
    for window in windows:
        left = max(0, window.most - window.used(now_s))
        policy.append(f'"{window.name}";q={window.most};w={window.seconds:g}')
        state.append(f'"{window.name}";r={left};t={int(window.opens_s(now_s))}')
    return {"RateLimit-Policy": ", ".join(policy), "RateLimit": ", ".join(state)}


def bearer(request: Request) -> str | None:
    """The token of a call."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" and key else None


def key_problem(request: Request, key: str | None, right: str) -> Response | None:
    """The refusal of a bot's user agent or a bad key; None when all is well."""
    if request.headers.get("user-agent", "").startswith("Python-urllib"):
        return Response("error code: 1010", 403, media_type="text/plain")
    if key is None:
        return problem(401, "missing bearer token")
    return None if key == right else problem(401, INVALID_KEY)
