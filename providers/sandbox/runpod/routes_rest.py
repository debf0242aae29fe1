"""The HTTP side: routes of REST v2, GraphQL and the retired v1, with the manners of the real gateway."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qs

from graphql import GraphQLError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.engine import CreateCall, Engine
from providers.sandbox.runpod import faults, routes_graphql
from providers.sandbox.runpod.account import NO_FREE_GPU, Account
from providers.sandbox.runpod.instance import Boot, Pod, v2
from providers.sandbox.runpod.responses import RateWindows, from_problem, problem
from providers.sandbox.runpod.routes_catalog import centers_body, gpu_row, gpus_body
from providers.sandbox.runpod.validation import Order, Problem, read_action, read_create

Handler = Callable[[Request], Awaitable[Response]]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
PAGE_MAX = 1000
BUCKETS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}


class Backend(Protocol):
    """What the handlers act on: the sandbox, which is described in `cloud.py`."""

    name: ClassVar[str]
    API_KEY: ClassVar[str]
    engine: Engine
    account: Account
    windows: RateWindows

    @property
    def now(self) -> datetime: ...

    def fault(self, name: str) -> dict[str, Any] | None: ...

    def deploy(self, order: Order, call: CreateCall) -> Pod: ...

    def spoiled(self, call: CreateCall) -> Response | None: ...

    def next_boot(self) -> Boot: ...


class Rest:
    """Handlers over one sandbox."""

    def __init__(self, cloud: Backend) -> None:
        self._cloud = cloud
        self._requests = 0

    def routes(self) -> list[BaseRoute]:
        """Every path; a method that a path does not know is answered 405 with `Allow`."""
        table: dict[str, Mapping[str, Handler]] = {
            "/v2/pods": {"GET": self._list, "POST": self._create},
            "/v2/pods/{pod_id}": {"GET": self._get, "DELETE": self._delete},
            "/v2/pods/{pod_id}/action": {"POST": self._action},
            "/v2/catalog/gpus": {"GET": self._gpus},
            "/v2/catalog/gpus/{gpu_id}": {"GET": self._gpu},
            "/v2/catalog/datacenters": {"GET": self._centers},
            "/v2/billing/pods": {"GET": self._bill},
            "/v2/account/ssh-keys": {"GET": self._keys, "PUT": self._set_keys},
            "/v2/{rest:path}": {},
        }
        routes: list[BaseRoute] = [Route(path, self._guarded(by), methods=METHODS) for path, by in table.items()]
        routes.append(Route("/graphql", self._graphql, methods=["POST"]))
        routes.append(Route("/v1/{rest:path}", self._gone, methods=METHODS))
        return routes

    # ── the gateway ──────────────────────────────────────────────────────────────────────────────

    def _guarded(self, by_method: Mapping[str, Handler]) -> Handler:
        kinds: dict[Handler | None, str] = {
            self._create: "create",
            self._list: "list",
            self._get: "get",
            self._delete: "destroy",
        }

        async def endpoint(request: Request) -> Response:
            kind = kinds.get(by_method.get(request.method), "")
            call = await self._noted(request) if kind == "create" else None
            request.state.call = call
            response = self._refused(request, _bearer(request), kind) or await self._handled(request, by_method)
            if call is not None and call.outcome == "received" and response.status_code >= 400:
                call.outcome = "refused"
            return self._stamped(response, authenticated=response.status_code != 401)

        return endpoint

    async def _handled(self, request: Request, by_method: Mapping[str, Handler]) -> Response:
        if not by_method:
            return problem(404, "resource not found")
        handler = by_method.get(request.method)
        if handler is None:
            detail = "The requested method is not allowed for this path."
            return problem(405, detail, headers={"Allow": ", ".join(by_method)})
        try:
            return await handler(request)
        except Problem as raised:
            return from_problem(raised)

    def _refused(self, request: Request, key: str | None, kind: str) -> Response | None:
        """What the gateway answers by itself: a bot's user agent, a bad key, a full window, an outage."""
        cloud = self._cloud
        if request.headers.get("user-agent", "").startswith("Python-urllib"):
            return Response("error code: 1010", 403, media_type="text/plain")
        if key is None:
            return problem(401, "missing bearer token")
        if key != cloud.API_KEY:
            return problem(401, faults.INVALID_KEY)
        for name, (status, detail) in {**faults.GATEWAY["*"], **faults.GATEWAY.get(kind, {})}.items():
            params = cloud.fault(name)
            if params is not None:
                return faults.gateway(name, status, detail, params)
        if cloud.engine.timing.enforce_rate_limits:
            window = cloud.windows.take(cloud.now)
            if window is not None:
                headers = {"Retry-After": str(cloud.windows.opens_s(window, cloud.now))}
                return problem(429, f"rate limit exceeded for the {window} window", headers=headers)
        return None

    def _stamped(self, response: Response, *, authenticated: bool) -> Response:
        self._requests += 1
        response.headers["x-request-id"] = f"{self._cloud.engine.seed:04x}-{self._requests:08d}"
        if authenticated and self._cloud.engine.timing.enforce_rate_limits:
            for name, value in self._cloud.windows.headers(self._cloud.now).items():
                response.headers.setdefault(name, value)
        return response

    async def _gone(self, _request: Request) -> Response:
        return problem(410, "This API was retired. Use REST v2: https://api.runpod.io/v2")

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────

    async def _noted(self, request: Request) -> CreateCall:
        body = await _json(request)
        given = body if isinstance(body, dict) else {}
        gpu = given.get("gpu")
        name, gpu_id = given.get("name"), gpu.get("id") if isinstance(gpu, dict) else None
        note = self._cloud.engine.note_create
        return note(self._cloud.name, name if isinstance(name, str) else None, f"{given.get('cloud')}/{gpu_id}")

    async def _create(self, request: Request) -> Response:
        call: CreateCall = request.state.call
        pod = self._cloud.deploy(read_create(await _json(request)), call)
        return self._cloud.spoiled(call) or JSONResponse(v2(pod, self._cloud.now), 201)

    async def _list(self, request: Request) -> Response:
        """Newest first. The cursor is the id of the last pod of the page before."""
        cloud, cursor = self._cloud, request.query_params.get("cursor")
        if cursor == "broken":
            return problem(500, faults.WENT_WRONG)
        pods = cloud.account.listed()
        small = cloud.fault("small_pages")
        limit = min(_whole(request, "limit", PAGE_MAX), PAGE_MAX)
        limit = limit if small is None else int(small.get("rows", 1))
        ids = [pod.id for pod in pods]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        page = pods[start : start + limit]
        more = start + limit < len(pods)
        body: dict[str, Any] = {"pods": [v2(pod, cloud.now) for pod in page]}
        pagination = {"nextCursor": page[-1].id if more else None, "hasNextPage": more}
        if cursor is None and cloud.fault("page_error") is not None:
            body["pods"] = body["pods"][: len(page) // 2]
            pagination = {"nextCursor": "broken", "hasNextPage": True}
        if cloud.fault("no_pagination") is None:
            body["pagination"] = pagination
        return JSONResponse(body)

    async def _get(self, request: Request) -> Response:
        return JSONResponse(v2(self._cloud.account.seen(request.path_params["pod_id"]), self._cloud.now))

    async def _delete(self, request: Request) -> Response:
        pod_id = request.path_params["pod_id"]
        self._cloud.account.seen(pod_id)
        if self._cloud.fault("delete_ignored") is None:
            self._cloud.account.act(pod_id, "terminate", self._cloud.next_boot())
        return Response(status_code=204)

    async def _action(self, request: Request) -> Response:
        cloud, pod_id = self._cloud, request.path_params["pod_id"]
        action = read_action(await _json(request))
        pod = cloud.account.seen(pod_id)
        if cloud.fault("action_conflict") is not None:
            raise Problem(409, f"action '{action}' is not allowed now")
        if action == "start" and cloud.fault("start_no_capacity") is not None:
            raise Problem(400, NO_FREE_GPU)
        if cloud.fault("action_ignored") is None:
            restarted = action in ("start", "restart")
            pod = cloud.account.act(pod_id, action, cloud.next_boot() if restarted else pod.boot)
        return Response(status_code=204) if action == "terminate" else JSONResponse(v2(pod, cloud.now))

    # ── catalogue, bill, keys ────────────────────────────────────────────────────────────────────

    async def _gpus(self, request: Request) -> Response:
        return JSONResponse(gpus_body(self._cloud.account.market, request.query_params))

    async def _gpu(self, request: Request) -> Response:
        gpu = self._cloud.account.market.types.get(request.path_params["gpu_id"])
        if gpu is None:
            raise Problem(404, "resource not found")
        return JSONResponse(gpu_row(self._cloud.account.market, gpu, request.query_params))

    async def _centers(self, request: Request) -> Response:
        return JSONResponse(centers_body(self._cloud.account.market, request.query_params))

    async def _bill(self, request: Request) -> Response:
        query, now = request.query_params, self._cloud.now
        bucket = query.get("bucketSize", "day")
        if bucket not in BUCKETS:
            raise Problem(400, f"bucketSize must be one of {', '.join(BUCKETS)}")
        if "lastN" in query and ("startTime" in query or "endTime" in query):
            raise Problem(400, "lastN excludes startTime and endTime")
        start, end = _instant(query.get("startTime"), now - timedelta(days=30)), _instant(query.get("endTime"), now)
        if "lastN" in query:
            start, end = now - BUCKETS[bucket] * _whole(request, "lastN", 1), now
        records = self._cloud.account.bill(start, end, BUCKETS[bucket], query.get("podId"))
        totals = {
            part: float(sum((Decimal(str(r[part])) for r in records), Decimal(0)))
            for part in ("totalAmount", "gpuAmount", "cpuAmount", "diskAmount")
        }
        metadata = {
            "query": {"startTime": start.isoformat(), "endTime": end.isoformat(), "bucketSize": bucket},
            "recordCount": len(records),
            "uniquePodCount": len({r["podId"] for r in records}),
            "totals": totals,
        }
        return JSONResponse({"records": records, "metadata": metadata})

    async def _keys(self, _request: Request) -> Response:
        return JSONResponse({"keys": self._cloud.account.public_key.splitlines()})

    async def _set_keys(self, request: Request) -> Response:
        """The whole list is replaced, as it is there."""
        body = await _json(request)
        keys = body.get("keys") if isinstance(body, dict) else None
        if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
            raise Problem(422, "Request validation failed.", ("$.keys: want an array of strings",))
        self._cloud.account.public_key = "\n".join(keys)
        return JSONResponse({"keys": keys})

    # ── GraphQL ──────────────────────────────────────────────────────────────────────────────────

    async def _graphql(self, request: Request) -> Response:
        return self._stamped(await self._graphql_answer(request), authenticated=False)

    async def _graphql_answer(self, request: Request) -> Response:
        cloud, body = self._cloud, await _json(request)
        given = body if isinstance(body, dict) else {}
        try:
            parsed = routes_graphql.document(given.get("query"))
        except GraphQLError as error:
            extensions = {"code": "GRAPHQL_VALIDATION_FAILED"}
            return JSONResponse({"errors": [{"message": error.message, "extensions": extensions}]}, 400)
        selected = routes_graphql.fields(parsed)
        creates = bool(selected & routes_graphql.CREATES)
        key = _bearer(request) or parse_qs(request.url.query).get("api_key", [None])[0]
        call = cloud.engine.note_create(cloud.name, None, "graphql") if creates else None
        public = key is None and selected <= routes_graphql.PUBLIC
        refused = self._refused(request, cloud.API_KEY if public else key, "create" if creates else "")
        if refused is None and cloud.fault("balance_retired") is not None:
            refused = problem(410, "This API was retired.")
        if refused is not None:
            if call is not None:
                call.outcome = "refused"
            return refused

        def deploy(order: Order) -> str:
            made = call or cloud.engine.note_create(cloud.name, order.name, "graphql")
            made.name, made.offer = order.name, f"{order.tier}/{order.gpu_id}"
            return cloud.deploy(order, made).id

        answer = routes_graphql.run(parsed, given.get("variables"), cloud.account, cloud.next_boot, deploy)
        spoiled = cloud.spoiled(call) if call is not None and call.ref is not None else None
        return spoiled or JSONResponse(answer)


def _bearer(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" and key else None


async def _json(request: Request) -> Any:
    """The parsed body; None when it is not JSON, which no schema accepts."""
    try:
        return json.loads(await request.body())
    except ValueError:
        return None


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdigit() or int(text) < 1:
        raise Problem(400, f"{name} must be a positive integer")
    return int(text)


def _instant(text: str | None, default: datetime) -> datetime:
    if text is None:
        return default
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Problem(400, "times are RFC 3339, for example 2026-11-21T10:00:00Z")
    return at
