"""Kaggle's answers about kernels, quota and competitions: what each call reads and how it is written down."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.api import ApiSandbox, Endpoint, Refused
from providers.sandbox.kaggle import faults
from providers.sandbox.kaggle.account import FINAL, WEEK, WEEK_S, KaggleAccount, Run

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


KaggleHandler = Callable[[KaggleCall], Response]


def address(request: Request) -> str:
    """The address of this sandbox as the client sees it, its prefix included."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"


SIGNED_FOR = timedelta(minutes=10)
RESULT = "result.txt"


class KaggleKernels(ApiSandbox[KaggleAccount]):
    """The calls about kernels; the push is the sandbox's own."""

    API_TOKEN = "KGAT_SANDBOX0000000000000000000000"  # noqa: S105 # The sandbox's own, good nowhere else.

    def routes(self) -> list[BaseRoute]:
        """Both prefixes of the remote-call form and the classic paths, the log streams, and the signed files."""
        handlers: Mapping[str, KaggleHandler] = {
            "SaveKernel": self.save,
            "ListKernels": self.kernels,
            "GetKernelSessionStatus": self.status,
            "ListKernelSessionOutput": self.output,
            "ListKernelFiles": self.files,
            "GetKernel": self.pull,
            "DownloadKernelOutput": self.download,
            "DeleteKernel": self.delete,
            "CancelKernelSession": _denied,
            "CreateKernelSession": _denied,
            "GetAcceleratorQuotaStatistics": self.quota,
            "ListCompetitions": _competitions,
            "IntrospectToken": self.introspect,
        }
        table: list[BaseRoute] = []
        for method, (service, verb, path) in METHODS.items():
            answer = self._endpoint(GROUPS.get(method, ""), handlers[method])
            table += [Route(f"{prefix}/v1/{service}/{method}", answer, methods=["POST"]) for prefix in ("", "/api")]
            table.append(Route(f"/api/v1{path}", answer, methods=[verb]))
        logs = self._endpoint("", self.logs)

        async def signed(request: Request) -> Response:
            return self.signed(KaggleCall({**request.query_params, **request.path_params}, address(request)))

        return [
            *table,
            *[Route(f"{p}/v1/kernels/logs/stream/{{owner}}/{{slug}}", logs, methods=["GET"]) for p in ("", "/api")],
            Route("/signed/{owner}/{slug}/{version}/{file}", signed, methods=["GET"]),
        ]

    def _endpoint(self, group: str, handler: KaggleHandler) -> Endpoint:
        """One call with everything that can happen before its handler."""

        async def handled(request: Request, body: dict[str, Any]) -> Response:
            return handler(KaggleCall(body, address(request)))

        return self.guarded(group, handled)

    @abstractmethod
    def save(self, asked: KaggleCall) -> Response:
        """`SaveKernel`: a new version with a session of its own, or a refusal in `error` under status 200."""

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    def kernels(self, asked: KaggleCall) -> Response:
        """The account's own kernels for the group PROFILE; everybody's public ones, none of them here, otherwise."""
        rows = self.account.kernels(self.now) if asked.text("group").upper() in ("PROFILE", "1") else []
        wanted = asked.text("search").lower()
        rows = [run for run in rows if wanted in run.slug]
        size = int(self.fault_value("small_pages", "rows", 1) or asked.whole("pageSize", 20))
        token = asked.text("pageToken")
        page = int(token.removeprefix("page-")) if token.removeprefix("page-").isdigit() else asked.whole("page", 1)
        part = rows[(page - 1) * size : page * size]
        more = len(rows) > page * size and self.fault("no_page_token") is None
        return JSONResponse(
            {"kernels": [_row(run) for run in part], "nextPageToken": f"page-{page + 1}" if more else ""}
        )

    def status(self, asked: KaggleCall) -> Response:
        """Of the version asked for, else of the newest. A wrong slug is a 403, a label such as `3` a 404."""
        run, now = self._run(asked, "userName"), self.now
        word = "RUNNING" if run.stuck and run.status(now) in FINAL else run.status(now)
        if word == "QUEUED" and "status_absent" in run.quirks:
            return JSONResponse({})
        shown = _camel(word) if "old_words" in run.quirks else word
        failed = word == "ERROR" and run.failure
        return JSONResponse({"status": shown} | ({"failureMessage": run.failure} if failed else {}))

    def files(self, asked: KaggleCall) -> Response:
        """The one file that the program leaves, once it has ended."""
        run = self._run(asked, "userName")
        done = run.status(self.now) in FINAL
        return JSONResponse({"files": [{"name": RESULT, "size": len(_result(run))}] if done else []})

    def output(self, asked: KaggleCall) -> Response:
        """Files by signed addresses, and the log. Both are empty while it runs."""
        run, now = self._run(asked, "userName"), self.now
        if run.status(now) not in FINAL:
            return JSONResponse({"files": [], "log": "", "nextPageToken": ""})
        expires = int((now + SIGNED_FOR).timestamp())
        query = f"expires={expires}&sig={_signature(run.ref, expires)}"
        url = f"{asked.base_url}/signed/{run.ref}/{RESULT}?{query}"
        log = json.dumps(_events(run))
        return JSONResponse({"files": [{"url": url, "fileName": RESULT}], "log": log, "nextPageToken": ""})

    def download(self, asked: KaggleCall) -> Response:
        """One file of the newest version."""
        run = self._run(asked, "ownerSlug")
        if asked.text("filePath") != RESULT or run.status(self.now) not in FINAL:
            raise no(404, "Not found")
        return PlainTextResponse(_result(run))

    def signed(self, asked: KaggleCall) -> Response:
        """A signed address; 403 when it is forged or old."""
        ref = f"{asked.text('owner')}/{asked.text('slug')}/{asked.text('version')}"
        expires = asked.whole("expires", 0)
        if asked.text("sig") != _signature(ref, expires) or expires < self.now.timestamp():
            return PlainTextResponse("Forbidden", 403)
        run = self.account.version(asked.text("slug"), asked.whole("version", 0), self.now)
        return PlainTextResponse("Not found", 404) if run is None else PlainTextResponse(_result(run))

    def logs(self, asked: KaggleCall) -> Response:
        """Server-sent events while it runs; afterwards one JSON array, which is no event stream."""
        run = self._run(asked, "owner")
        if run.status(self.now) in FINAL:
            return JSONResponse(_events(run))
        lines = [f"data: {json.dumps(event)}\n\n" for event in _events(run)]
        return Response("".join([*lines, "data: END_OF_LOG\n\n"]), media_type="text/event-stream")

    def pull(self, asked: KaggleCall) -> Response:
        run = self._run(asked, "userName")
        blob = {key: run.source.get(key) for key in ("language", "kernelType")}
        return JSONResponse(
            {"metadata": _row(run), "blob": {"source": run.source.get("text"), "slug": run.slug, **blob}}
        )

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def delete(self, asked: KaggleCall) -> Response:
        """Removes every version with its results, and ends a session that runs: whether it does is not documented."""
        self._run(asked, "userName")
        now = self.now
        if self.fault("delete_ignored") is None:
            spared = self.fault("delete_spares_run") is not None
            for run in self.account.runs:
                if run.slug == asked.text("kernelSlug") and run.created_at <= now:
                    run.deleted = True
                    if not spared:
                        run.finish(now, "CANCEL_ACKNOWLEDGED")
        return JSONResponse({})

    # ── the account ──────────────────────────────────────────────────────────────────────────────

    def quota(self, _asked: KaggleCall) -> Response:
        """Hours of this week as protobuf durations."""
        account, now = self.account, self.now
        refresh = (account.week(now) + WEEK).strftime("%Y-%m-%dT%H:%M:%SZ")
        tpu = {"timeUsed": "0s", "timeReserved": "0s", "totalTimeAllowed": "72000s", "hasEverRun": False}
        if self.fault("quota_missing") is not None:
            return JSONResponse({"quotaRefreshTime": refresh})
        gpu = {
            "timeUsed": f"{account.used_s(now).normalize():f}s",
            "timeReserved": f"{int(self.fault_value('quota_reserved', 'seconds', 3600) or 0)}s",
            "totalTimeAllowed": f"{WEEK_S}s",
            "isPayToScaleEnabled": False,
            "hasEverRun": bool(account.runs),
        }
        return JSONResponse({"quotaRefreshTime": refresh, "gpuQuota": gpu, "tpuQuota": tpu})

    def introspect(self, asked: KaggleCall) -> Response:
        """Whose token it is; an unknown one is a 400."""
        if asked.text("token") != self.API_TOKEN:
            raise no(400, "Invalid token")
        owner = self.account.owner
        return JSONResponse({"active": True, "username": owner, "userId": 1, "scope": "resources.admin:*"})

    def _run(self, asked: KaggleCall, owner_field: str) -> Run:
        """The version that a call names. Raises `Refused`: 403 for a wrong slug, 404 for a wrong label."""
        account, now = self.account, self.now
        slug, label = asked.text("kernelSlug", "slug"), asked.text("versionLabel")
        newest = account.newest(slug, now)
        if asked.text(owner_field) != account.owner or newest is None:
            raise no(403, faults.DENIED)
        if not label:
            return newest
        number = label.removeprefix("v")
        run = account.version(slug, int(number), now) if label.startswith("v") and number.isdigit() else None
        if run is None:
            raise no(404, "Version not found")
        return run


def _denied(_asked: KaggleCall) -> Response:
    """No public answer holds a session id, and the call is refused even with one."""
    raise no(403, "Permission 'kernelSessions.cancel' was denied")


def _competitions(_asked: KaggleCall) -> Response:
    row = {"id": 1, "ref": "https://www.kaggle.com/competitions/titanic", "title": "Titanic", "userHasEntered": False}
    return JSONResponse({"competitions": [row], "nextPageToken": ""})


def _row(run: Run) -> dict[str, Any]:
    kept = ("language", "kernelType", "isPrivate", "enableGpu", "enableTpu", "enableInternet")
    return {
        "id": int(hashlib.sha256(run.slug.encode()).hexdigest()[:7], 16),
        "ref": f"{run.owner}/{run.slug}",
        "title": run.source.get("newTitle", run.slug),
        "author": run.owner,
        "slug": run.slug,
        "lastRunTime": run.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "machineShape": run.shape,
        "currentVersionNumber": run.version,
        "totalVotes": 0,
        **{key: run.source[key] for key in kept if key in run.source},
    }


def _events(run: Run) -> list[Mapping[str, Any]]:
    return [{"stream_name": "stdout", "time": 1.2, "data": f"{run.slug} v{run.version} on {run.shape or 'CPU'}\n"}]


def _result(run: Run) -> str:
    return f"result of {run.ref}\n"


def _signature(ref: str, expires: int) -> str:
    return hashlib.sha256(f"sandbox/{ref}/{expires}".encode()).hexdigest()[:32]


def _camel(word: str) -> str:
    first, *others = word.lower().split("_")
    return first + "".join(other.capitalize() for other in others)
