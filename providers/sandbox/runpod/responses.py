"""How RunPod answers: problem documents, request ids, and the three rate windows of one user."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import JSONResponse, Response

from providers.sandbox.runpod.validation import Problem

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
#: Window → (requests, seconds): the numbers of the documented example.
WINDOWS = {"minute": (60, 60), "hour": (3000, 3600), "day": (50000, 86400)}


def problem(status: int, detail: str, errors: tuple[str, ...] = (), headers: dict[str, str] | None = None) -> Response:
    """An RFC 9457 answer."""
    body: dict[str, Any] = {"title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def from_problem(raised: Problem) -> Response:
    """The answer that a raised `Problem` stands for."""
    return problem(raised.status, raised.detail, raised.errors)


class RateWindows:
    """Counts one user's requests in three windows at once. A refused request is not counted."""

    def __init__(self) -> None:
        self._seen: deque[datetime] = deque()

    def take(self, now: datetime) -> str | None:
        """Count a request, or name the window that is full."""
        full = next((name for name in WINDOWS if self._left(name, now) <= 0), None)
        if full is None:
            self._seen.append(now)
        return full

    def headers(self, now: datetime) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit` as of now."""
        policy = ", ".join(f'"{name}";q={q};w={w}' for name, (q, w) in WINDOWS.items())
        state = ", ".join(f'"{name}";r={max(0, self._left(name, now))};t={self.opens_s(name, now)}' for name in WINDOWS)
        return {"RateLimit-Policy": policy, "RateLimit": state}

    def opens_s(self, name: str, now: datetime) -> int:
        """Whole seconds until the oldest request leaves the window."""
        inside = self._inside(name, now)
        if not inside:
            return 0
        return max(1, int((inside[0] + timedelta(seconds=WINDOWS[name][1]) - now).total_seconds()))

    def _left(self, name: str, now: datetime) -> int:
        return WINDOWS[name][0] - len(self._inside(name, now))

    def _inside(self, name: str, now: datetime) -> list[datetime]:
        while self._seen and self._seen[0] <= now - timedelta(days=1):
            self._seen.popleft()
        return [at for at in self._seen if at > now - timedelta(seconds=WINDOWS[name][1])]
