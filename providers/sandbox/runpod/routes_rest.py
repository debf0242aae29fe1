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

from providers.sandbox.api import ApiSandbox, Endpoint, Handler, Refused, json_of, shows
from providers.sandbox.runpod import faults, routes_graphql
from providers.sandbox.runpod.account import RunPodAccount
from providers.sandbox.runpod.faults import NO_FREE_GPU, RunPodProblem, bearer, key_problem, problem, rate_headers
from providers.sandbox.runpod.instance import Pod, v2
from providers.sandbox.runpod.market import centers_body, gpu_row
from providers.sandbox.runpod.routes_volumes import NetworkVolumes
from providers.sandbox.runpod.validation import Order, read_action, read_create

#: The key of a pod for itself, without its id at the end, and the mutations that it may send about itself.
POD_KEY = "sandbox-pod-key-"
OWN_CALLS = frozenset({"podStop", "podTerminate"})
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
PAGE_MAX = 1000
BUCKETS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}


class RunPodRest(ApiSandbox[RunPodAccount]):
    """Handlers of the whole account."""

    _requests = 0

    def routes(self) -> list[BaseRoute]:
        """`/v2/…` with the group of calls and the handler of each method, `/graphql`, and `/v1/…`, which is gone."""
        table: dict[str, Mapping[str, tuple[str, Handler]]] = {
            "/v2/pods": {"GET": ("list", self._list), "POST": ("create", self._create)},
            "/v2/pods/{pod_id}": {"GET": ("get", self._get), "DELETE": ("destroy", self._delete)},
            "/v2/pods/{pod_id}/action": {"POST": ("", self._action)},
            "/v2/catalog/gpus": {"GET": ("", self._gpus)},
            "/v2/catalog/gpus/{gpu_id}": {"GET": ("", self._gpu)},
            "/v2/catalog/datacenters": {"GET": ("", self._centers)},
            "/v2/billing/pods": {"GET": ("", self._bill)},
            "/v2/billing/network-volumes": {"GET": ("", self._volume_bill)},
            **NetworkVolumes(self).table(),
            "/v2/account/ssh-keys": {"GET": ("", shows(self._keys)), "PUT": ("", self._set_keys)},
            "/v2/{rest:path}": {},
        }
        routes: list[BaseRoute] = [Route(path, self._endpoint(by), methods=METHODS) for path, by in table.items()]
        routes.append(Route("/graphql", self._graphql, methods=["POST"]))
        routes.append(Route("/v1/{rest:path}", self._gone, methods=METHODS))
        return routes

    # ── the gateway ──────────────────────────────────────────────────────────────────────────────

    def _endpoint(self, by_method: Mapping[str, tuple[str, Handler]]) -> Endpoint:
        """One path; a method that it does not know is answered 405 with `Allow`."""

        async def no_method(_request: Request, _body: dict[str, Any]) -> Response:
            if not by_method:
                return problem(404, "resource not found")
            detail = "The requested method is not allowed for this path."
            return problem(405, detail, headers={"Allow": ", ".join(by_method)})

        known = {method: self.guarded(*row) for method, row in by_method.items()}
        unknown = self.guarded("", no_method)

        async def endpoint(request: Request) -> Response:
            response = await known.get(request.method, unknown)(request)
            return self._stamped(response, authenticated=response.status_code != 401)

        return endpoint

    def _stamped(self, response: Response, *, authenticated: bool) -> Response:
        self._requests += 1
        engine = self.engine
        response.headers["x-request-id"] = f"{engine.seed:04x}-{self._requests:08d}"
        if authenticated and engine.timing.enforce_rate_limits:
            for name, value in rate_headers(self.rate_windows(""), engine.clock.monotonic()).items():
                response.headers.setdefault(name, value)
        return response

    async def _gone(self, _request: Request) -> Response:
        return problem(410, "This API was retired. Use REST v2: https://api.runpod.io/v2")

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────

    def _deploy(self, order: Order) -> Pod:
        """Make the pod that was ordered. Raises `Problem`."""
        lands_in_s = self.lands_in_s()
        pod = self.account.deploy(order, lands_in_s)
        self.committed(pod.ref, lands_in_s)
        return pod

    async def _create(self, _request: Request, body: dict[str, Any]) -> Response:
        return JSONResponse(v2(self._deploy(read_create(body)), self.now), 201)

    async def _list(self, request: Request, _body: dict[str, Any]) -> Response:
        """Newest first. The cursor is the id of the last pod of the page before."""
        cursor = request.query_params.get("cursor")
        if cursor == "broken":
            return problem(500, faults.WENT_WRONG)
        pods = self.account.listed()
        limit = min(_whole(request, "limit", PAGE_MAX), PAGE_MAX)
        limit = int(self.fault_value("small_pages", "rows", 1) or limit)
        ids = [pod.ref for pod in pods]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        page = pods[start : start + limit]
        more = start + limit < len(pods)
        body: dict[str, Any] = {"pods": [v2(pod, self.now) for pod in page]}
        pagination = {"nextCursor": page[-1].ref if more else None, "hasNextPage": more}
        if cursor is None and self.fault("page_error") is not None:
            body["pods"] = body["pods"][: len(page) // 2]
            pagination = {"nextCursor": "broken", "hasNextPage": True}
        if self.fault("no_pagination") is None:
            body["pagination"] = pagination
        return JSONResponse(body)

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(v2(self.account.seen(request.path_params["pod_id"]), self.now))

    async def _delete(self, request: Request, _body: dict[str, Any]) -> Response:
        pod_id = request.path_params["pod_id"]
        self.account.seen(pod_id)
        if self.fault("delete_ignored") is None:
            self.account.act(pod_id, "terminate", self.account.next_boot())
        return Response(status_code=204)

    async def _action(self, request: Request, body: dict[str, Any]) -> Response:
        pod_id = request.path_params["pod_id"]
        action = read_action(body)
        pod = self.account.seen(pod_id)
        if self.fault("action_conflict") is not None:
            raise RunPodProblem(409, f"action '{action}' is not allowed now")
        if action == "start" and self.fault("start_no_capacity") is not None:
            raise RunPodProblem(400, NO_FREE_GPU)
        if self.fault("action_ignored") is None:
            restarted = action in ("start", "restart")
            pod = self.account.act(pod_id, action, self.account.next_boot() if restarted else pod.boot)
        return Response(status_code=204) if action == "terminate" else JSONResponse(v2(pod, self.now))

    # ── catalogue, bill, keys ────────────────────────────────────────────────────────────────────

    async def _gpus(self, request: Request, _body: dict[str, Any]) -> Response:
        market = self.account.market
        return JSONResponse({"gpus": [gpu_row(market, gpu, request.query_params) for gpu in market.types.values()]})

    async def _gpu(self, request: Request, _body: dict[str, Any]) -> Response:
        gpu = self.account.market.types.get(request.path_params["gpu_id"])
        if gpu is None:
            raise RunPodProblem(404, "resource not found")
        return JSONResponse(gpu_row(self.account.market, gpu, request.query_params))

    async def _centers(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(centers_body(self.account.market, request.query_params))

    async def _bill(self, request: Request, _body: dict[str, Any]) -> Response:
        start, end, bucket, query = self._billed(request)
        records = self.account.bill(start, end, BUCKETS[bucket], request.query_params.get("podId"))
        counted = {"uniquePodCount": len({r["podId"] for r in records})}
        return _billing(records, query, counted, ("totalAmount", "gpuAmount", "cpuAmount", "diskAmount"))

    async def _volume_bill(self, request: Request, _body: dict[str, Any]) -> Response:
        start, end, bucket, query = self._billed(request)
        volume_id = request.query_params.get("networkVolumeId")
        records = self.account.volume_bill(start, end, BUCKETS[bucket], volume_id)
        counted = {"uniqueNetworkVolumeCount": len({r["networkVolumeId"] for r in records})}
        return _billing(records, query, counted, ("totalAmount", "standardAmount", "highPerformanceAmount"))

    def _billed(self, request: Request) -> tuple[datetime, datetime, str, dict[str, str]]:
        """The period and bucket that a bill is asked for, and how its answer says them. Raises `Problem`."""
        query, now = request.query_params, self.now
        bucket = query.get("bucketSize", "day")
        if bucket not in BUCKETS:
            raise RunPodProblem(400, f"bucketSize must be one of {', '.join(BUCKETS)}")
        if "lastN" in query and ("startTime" in query or "endTime" in query):
            raise RunPodProblem(400, "lastN excludes startTime and endTime")
        start, end = _instant(query.get("startTime"), now - timedelta(days=30)), _instant(query.get("endTime"), now)
        if "lastN" in query:
            start, end = now - BUCKETS[bucket] * _whole(request, "lastN", 1), now
        said = {"startTime": start.isoformat(), "endTime": end.isoformat(), "bucketSize": bucket}
        return start, end, bucket, said

    def _keys(self) -> dict[str, Any]:
        return {"keys": self.account.public_key.splitlines()}

    async def _set_keys(self, _request: Request, body: dict[str, Any]) -> Response:
        """The whole list is replaced, as it is there."""
        keys = body.get("keys")
        if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
            raise RunPodProblem(422, "Request validation failed.", ("$.keys: want an array of strings",))
        self.account.public_key = "\n".join(keys)
        return JSONResponse({"keys": keys})

    # ── GraphQL ──────────────────────────────────────────────────────────────────────────────────

    async def _graphql(self, request: Request) -> Response:
        try:
            answer = await self._graphql_answer(request)
        except Refused as refused:
            answer = refused.answer
        return self._stamped(answer, authenticated=False)

    async def _graphql_answer(self, request: Request) -> Response:
        body = await json_of(request)
        given = body if isinstance(body, dict) else {}
        try:
            if routes_graphql.SPOT in str(given.get("query")) and self.fault("spot_withdrawn") is not None:
                raise GraphQLError(f'Cannot query field "{routes_graphql.SPOT}" on type "Mutation".')
            parsed = routes_graphql.document(given.get("query"))
        except GraphQLError as error:
            extensions = {"code": "GRAPHQL_VALIDATION_FAILED"}
            return JSONResponse({"errors": [{"message": error.message, "extensions": extensions}]}, 400)
        selected = routes_graphql.fields(parsed)
        group = "create" if selected & routes_graphql.CREATES else ""
        call = self.engine.note_create(self.name, None, "graphql") if group else None
        key = bearer(request) or parse_qs(request.url.query).get("api_key", [None])[0]
        public = key is None and selected <= routes_graphql.PUBLIC
        own = selected <= OWN_CALLS and key == POD_KEY + routes_graphql.only_pod(parsed, given.get("variables"))
        refusal = key_problem(request, self.API_KEY if public or own else key, self.API_KEY)
        if refusal is not None:
            return refusal
        self.refuse(group)
        self.count(group)
        self.refuse("graphql")

        def deploy(order: Order) -> Pod:
            if call is not None:
                call.name, call.offer = order.name, f"{order.tier}/{order.gpu_id}"
            return self._deploy(order)

        answer = JSONResponse(routes_graphql.run(parsed, given.get("variables"), self.account, deploy))
        return self.spoiled(group, answer, call) if call is not None else answer


def _billing(
    records: list[dict[str, Any]], query: dict[str, str], counted: dict[str, int], parts: tuple[str, ...]
) -> Response:
    """The answer of a billing call: its records, and the sums of their parts."""
    totals = {part: float(sum((Decimal(str(r[part])) for r in records), Decimal(0))) for part in parts}
    metadata = {"query": query, "recordCount": len(records), **counted, "totals": totals}
    return JSONResponse({"records": records, "metadata": metadata})


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
