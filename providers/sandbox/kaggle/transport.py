"""How Kaggle is spoken to: remote calls by POST, the classic paths beside them, and what a call says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.api import ApiSandbox, Refused
from providers.sandbox.kaggle import faults
from providers.sandbox.kaggle.account import KaggleAccount

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
#: Method → the group of calls that its faults are named for.
GROUPS: Mapping[str, str] = {
    "SaveKernel": "create",
    "ListKernels": "list",
    "GetKernelSessionStatus": "get",
    "DeleteKernel": "destroy",
    "GetAcceleratorQuotaStatistics": "quota",
    "ListCompetitions": "competitions",
}


def no(status: int, message: str) -> Refused:
    """An error object as the answer."""
    return Refused(faults.error(status, message))


@dataclass(frozen=True, slots=True)
class KaggleCall:
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
            raise no(400, f"{name} is not a number") from None


Handler = Callable[[KaggleCall], Response]


def routes(cloud: ApiSandbox[KaggleAccount], handlers: Mapping[str, Handler]) -> list[BaseRoute]:
    """Both prefixes of the remote-call form, and the classic paths."""
    table: list[BaseRoute] = []
    for method, (service, verb, path) in METHODS.items():
        answer = endpoint(cloud, GROUPS.get(method, ""), handlers[method])
        table += [Route(f"{prefix}/v1/{service}/{method}", answer, methods=["POST"]) for prefix in ("", "/api")]
        table.append(Route(f"/api/v1{path}", answer, methods=[verb]))
    return table


def endpoint(
    cloud: ApiSandbox[KaggleAccount], group: str, handler: Handler
) -> Callable[[Request], Awaitable[Response]]:
    """One call with everything that can happen before its handler."""

    async def handled(request: Request, body: dict[str, Any]) -> Response:
        return handler(KaggleCall(body, address(request)))

    return cloud.guarded(group, handled)


def address(request: Request) -> str:
    """The address of this sandbox as the client sees it, its prefix included."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"
