"""The HTTP side: routes of REST v2, GraphQL and the retired v1, with the manners of the real gateway."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs

from graphql import GraphQLError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.api import ApiSandbox, Endpoint, Handler, Refused, json_of
from providers.sandbox.runpod import faults, routes_graphql
from providers.sandbox.runpod.account import RunPodAccount
from providers.sandbox.runpod.faults import NO_FREE_GPU, RunPodProblem, bearer, key_problem, problem, rate_headers
from providers.sandbox.runpod.instance import Pod, v2
from providers.sandbox.runpod.market import centers_body, gpu_row, gpus_body
from providers.sandbox.runpod.validation import Order, read_action, read_create

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
PAGE_MAX = 1000
BUCKETS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}


class Rest:
    """Handlers over one sandbox."""

    def __init__(self, cloud: ApiSandbox[RunPodAccount]) -> None:
        self._cloud = cloud
        self._requests = 0

    def routes(self) -> list[BaseRoute]:
        """Every path with the group of calls and the handler of each method."""
        table: dict[str, Mapping[str, tuple[str, Handler]]] = {
            "/v2/pods": {"GET": ("list", self._list), "POST": ("create", self._create)},
            "/v2/pods/{pod_id}": {"GET": ("get", self._get), "DELETE": ("destroy", self._delete)},
            "/v2/pods/{pod_id}/action": {"POST": ("", self._action)},
            "/v2/catalog/gpus": {"GET": ("", self._gpus)},
            "/v2/catalog/gpus/{gpu_id}": {"GET": ("", self._gpu)},
            "/v2/catalog/datacenters": {"GET": ("", self._centers)},
            "/v2/billing/pods": {"GET": ("", self._bill)},
            "/v2/account/ssh-keys": {"GET": ("", self._keys), "PUT": ("", self._set_keys)},
            "/v2/{rest:path}": {},
        }
        routes: list[BaseRoute] = [Route(path, self._endpoint(by), methods=METHODS) for path, by in table.items()]
        routes.append(Route("/graphql", self._graphql, methods=["POST"]))
        routes.append(Route("/v1/{rest:path}", self._gone, methods=METHODS))
        return routes

    # ── the gateway ──────────────────────────────────────────────────────────────────────────────

    def _endpoint(self, by_method: Mapping[str, tuple[str, Handler]]) -> Endpoint:
        """One path; a method that it does not know is answered 405 with `Allow`."""
        cloud = self._cloud

        async def no_method(_request: Request, _body: dict[str, Any]) -> Response:
            if not by_method:
                return problem(404, "resource not found")
            detail = "The requested method is not allowed for this path."
            return problem(405, detail, headers={"Allow": ", ".join(by_method)})

        known = {method: cloud.guarded(*row) for method, row in by_method.items()}
        unknown = cloud.guarded("", no_method)

        async def endpoint(request: Request) -> Response:
            response = await known.get(request.method, unknown)(request)
            return self._stamped(response, authenticated=response.status_code != 401)

        return endpoint

    def _stamped(self, response: Response, *, authenticated: bool) -> Response:
        self._requests += 1
        engine = self._cloud.engine
        response.headers["x-request-id"] = f"{engine.seed:04x}-{self._requests:08d}"
        if authenticated and engine.timing.enforce_rate_limits:
            for name, value in rate_headers(self._cloud.rate_windows(""), engine.clock.monotonic()).items():
                response.headers.setdefault(name, value)
        return response

    async def _gone(self, _request: Request) -> Response:
        return problem(410, "This API was retired. Use REST v2: https://api.runpod.io/v2")

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────

    def _deploy(self, order: Order) -> Pod:
        """Make the pod that was ordered. Raises `Problem`."""
        lands_in_s = self._cloud.lands_in_s()
        pod = self._cloud.account.deploy(order, lands_in_s)
        self._cloud.committed(pod.ref, lands_in_s)
        return pod

    async def _create(self, _request: Request, body: dict[str, Any]) -> Response:
        return JSONResponse(v2(self._deploy(read_create(body)), self._cloud.now), 201)

    async def _list(self, request: Request, _body: dict[str, Any]) -> Response:
        """Newest first. The cursor is the id of the last pod of the page before."""
        cloud, cursor = self._cloud, request.query_params.get("cursor")
        if cursor == "broken":
            return problem(500, faults.WENT_WRONG)
        pods = cloud.account.listed()
        small = cloud.fault("small_pages")
        limit = min(_whole(request, "limit", PAGE_MAX), PAGE_MAX)
        limit = limit if small is None else int(small.get("rows", 1))
        ids = [pod.ref for pod in pods]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        page = pods[start : start + limit]
        more = start + limit < len(pods)
        body: dict[str, Any] = {"pods": [v2(pod, cloud.now) for pod in page]}
        pagination = {"nextCursor": page[-1].ref if more else None, "hasNextPage": more}
        if cursor is None and cloud.fault("page_error") is not None:
            body["pods"] = body["pods"][: len(page) // 2]
            pagination = {"nextCursor": "broken", "hasNextPage": True}
        if cloud.fault("no_pagination") is None:
            body["pagination"] = pagination
        return JSONResponse(body)

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(v2(self._cloud.account.seen(request.path_params["pod_id"]), self._cloud.now))

    async def _delete(self, request: Request, _body: dict[str, Any]) -> Response:
        pod_id = request.path_params["pod_id"]
        self._cloud.account.seen(pod_id)
        if self._cloud.fault("delete_ignored") is None:
            self._cloud.account.act(pod_id, "terminate", self._cloud.account.next_boot())
        return Response(status_code=204)

    async def _action(self, request: Request, body: dict[str, Any]) -> Response:
        cloud, pod_id = self._cloud, request.path_params["pod_id"]
        action = read_action(body)
        pod = cloud.account.seen(pod_id)
        if cloud.fault("action_conflict") is not None:
            raise RunPodProblem(409, f"action '{action}' is not allowed now")
        if action == "start" and cloud.fault("start_no_capacity") is not None:
            raise RunPodProblem(400, NO_FREE_GPU)
        if cloud.fault("action_ignored") is None:
            restarted = action in ("start", "restart")
            pod = cloud.account.act(pod_id, action, cloud.account.next_boot() if restarted else pod.boot)
        return Response(status_code=204) if action == "terminate" else JSONResponse(v2(pod, cloud.now))

    # ── catalogue, bill, keys ────────────────────────────────────────────────────────────────────

    async def _gpus(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(gpus_body(self._cloud.account.market, request.query_params))

    async def _gpu(self, request: Request, _body: dict[str, Any]) -> Response:
        gpu = self._cloud.account.market.types.get(request.path_params["gpu_id"])
        if gpu is None:
            raise RunPodProblem(404, "resource not found")
        return JSONResponse(gpu_row(self._cloud.account.market, gpu, request.query_params))

    async def _centers(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(centers_body(self._cloud.account.market, request.query_params))

    async def _bill(self, request: Request, _body: dict[str, Any]) -> Response:
        query, now = request.query_params, self._cloud.now
        bucket = query.get("bucketSize", "day")
        if bucket not in BUCKETS:
            raise RunPodProblem(400, f"bucketSize must be one of {', '.join(BUCKETS)}")
        if "lastN" in query and ("startTime" in query or "endTime" in query):
            raise RunPodProblem(400, "lastN excludes startTime and endTime")
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

    async def _keys(self, _request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse({"keys": self._cloud.account.public_key.splitlines()})

    async def _set_keys(self, _request: Request, body: dict[str, Any]) -> Response:
        """The whole list is replaced, as it is there."""
        keys = body.get("keys")
        if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
            raise RunPodProblem(422, "Request validation failed.", ("$.keys: want an array of strings",))
        self._cloud.account.public_key = "\n".join(keys)
        return JSONResponse({"keys": keys})

    # ── GraphQL ──────────────────────────────────────────────────────────────────────────────────

    async def _graphql(self, request: Request) -> Response:
        try:
            answer = await self._graphql_answer(request)
        except Refused as refused:
            answer = refused.answer
        return self._stamped(answer, authenticated=False)

    async def _graphql_answer(self, request: Request) -> Response:
        cloud, body = self._cloud, await json_of(request)
        given = body if isinstance(body, dict) else {}
        try:
            parsed = routes_graphql.document(given.get("query"))
        except GraphQLError as error:
            extensions = {"code": "GRAPHQL_VALIDATION_FAILED"}
            return JSONResponse({"errors": [{"message": error.message, "extensions": extensions}]}, 400)
        selected = routes_graphql.fields(parsed)
        group = "create" if selected & routes_graphql.CREATES else ""
        call = cloud.noted(None, "graphql") if group else None
        key = bearer(request) or parse_qs(request.url.query).get("api_key", [None])[0]
        public = key is None and selected <= routes_graphql.PUBLIC
        refusal = key_problem(request, cloud.API_KEY if public else key, cloud.API_KEY)
        if refusal is not None:
            return refusal
        cloud.refuse(group)
        cloud.count(group)
        cloud.refuse("graphql")

        def deploy(order: Order) -> Pod:
            if call is not None:
                call.name, call.offer = order.name, f"{order.tier}/{order.gpu_id}"
            return self._deploy(order)

        answer = JSONResponse(routes_graphql.run(parsed, given.get("variables"), cloud.account, deploy))
        return cloud.spoiled(group, answer, call) if call is not None else answer


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdigit() or int(text) < 1:
        raise RunPodProblem(400, f"{name} must be a positive integer")
    return int(text)


def _instant(text: str | None, default: datetime) -> datetime:
    if text is None:
        return default
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise RunPodProblem(400, "times are RFC 3339, for example 2026-11-21T10:00:00Z")
    return at
