"""How Kaggle is spoken to: remote calls by POST, the classic paths beside them, two kinds of credentials, errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.kaggle import faults

KERNELS = "kernels.KernelsApiService"
#: Method → (service, classic verb, classic path below `/api/v1`). Over the remote-call form everything is a POST.
METHODS: Mapping[str, tuple[str, str, str]] = {
    "SaveKernel": (KERNELS, "POST", "/kernels/push"),
    "ListKernels": (KERNELS, "GET", "/kernels/list"),
    "GetKernelSessionStatus": (KERNELS, "GET", "/kernels/status"),
    "ListKernelSessionOutput": (KERNELS, "GET", "/kernels/output"),
    "ListKernelFiles": (KERNELS, "GET", "/kernels/files"),
    "GetKernel": (KERNELS, "GET", "/kernels/pull"),
    "DownloadKernelOutput": (KERNELS, "GET", "/kernels/output/download/{ownerSlug}/{kernelSlug}/{filePath:path}"),
    "DeleteKernel": (KERNELS, "POST", "/kernels/delete/{userName}/{kernelSlug}"),
    "CancelKernelSession": (KERNELS, "POST", "/kernels/cancel-session/{kernelSessionId}"),
    "CreateKernelSession": (KERNELS, "POST", "/kernels/create-session/{slug}"),
    "GetAcceleratorQuotaStatistics": (KERNELS, "GET", "/kernels/quota"),
    "ListCompetitions": ("competitions.CompetitionApiService", "GET", "/competitions/list"),
    "IntrospectToken": ("security.OAuthService", "POST", "/oauth2/introspect"),
}


@dataclass(slots=True)
class Refused(Exception):
    """An error object is the answer: HTTP status and message, or `code` alone under HTTP 200 when `under_200`."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    under_200: bool = False

    def answer(self) -> Response:
        """`{"code": …, "message": …}`."""
        body = {"code": self.status, "message": self.message}
        return JSONResponse(body, 200 if self.under_200 else self.status, self.headers)


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: its body, or the query and path of a classic one, and the address that the client used."""

    body: dict[str, Any]
    base_url: str

    def text(self, *names: str) -> str:
        """The first of these fields that is given, as text."""
        return next((str(self.body[name]) for name in names if self.body.get(name) not in (None, "")), "")

    def whole(self, name: str, default: int) -> int:
        """A number from JSON or from a query string; Refused 400 for anything else."""
        try:
            return int(self.body.get(name) or default)
        except (TypeError, ValueError):
            raise Refused(400, f"{name} is not a number") from None


Handler = Callable[[Asked], Response]
#: Takes the name of a fault and gives its parameters, or None.
Take = Callable[[str], Mapping[str, Any] | None]


class Wire:
    """The routes of the sandbox. `take` uses up armed faults, `now` is its time, `note` hears of every call."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        take: Take,
        now: Callable[[], datetime],
        credentials: tuple[str, str, str],
        note: Callable[[str, Asked], None],
    ) -> None:
        self._handlers = handlers
        self._take = take
        self._now = now
        self._note = note
        user, key, token = credentials
        basic = base64.b64encode(f"{user}:{key}".encode()).decode()
        self._accepted = {f"Basic {basic}", f"Bearer {token}"}

    def routes(self) -> list[BaseRoute]:
        """Both prefixes of the remote-call form, and the classic paths."""
        table: list[BaseRoute] = []
        for method, (service, verb, path) in METHODS.items():
            endpoint = self.endpoint(method, self._handlers[method])
            table += [Route(f"{prefix}/v1/{service}/{method}", endpoint, methods=["POST"]) for prefix in ("", "/api")]
            table.append(Route(f"/api/v1{path}", endpoint, methods=[verb]))
        return table

    def endpoint(self, method: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """One call with everything that can happen before its handler."""

        async def answer(request: Request) -> Response:
            try:
                asked = Asked(await _body(request), address(request))
                self._note(method, asked)
                self._gateway(method)
                if method != "IntrospectToken" and request.headers.get("authorization") not in self._accepted:
                    raise Refused(401, faults.UNAUTHENTICATED)
                return handler(asked)
            except Refused as refused:
                return refused.answer()

        return answer

    def _gateway(self, method: str) -> None:
        for kind in ("*", method):
            for name, (status, message) in faults.GATEWAY.get(kind, {}).items():
                params = self._take(name)
                if params is not None:
                    raise self._refused(name, int(params.get("status", status)), message, params)

    def _refused(self, name: str, status: int, message: str, params: Mapping[str, Any]) -> Refused:
        if status != 429 or name.endswith("_bare"):
            return Refused(status, message)
        if name.endswith("_200"):
            return Refused(status, message, under_200=True)
        wait_s = float(params.get("retry_after", 7))
        at = format_datetime(self._now() + timedelta(seconds=wait_s), usegmt=True)
        return Refused(status, message, {"Retry-After": at if name.endswith("_date") else f"{wait_s:g}"})


def address(request: Request) -> str:
    """The address of this sandbox as the client sees it, its prefix included."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"


async def _body(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {**request.query_params, **request.path_params}
    text = await request.body()
    if text:
        try:
            parsed = json.loads(text)
        except ValueError:
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(parsed, dict):
            raise Refused(400, "the body is not a JSON object")
        given |= parsed
    return given
