"""The reading side of Vast.ai's API: listings, charges, the user, SSH keys and logs."""

from __future__ import annotations

import base64
import json
import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from providers.sandbox.api import ApiSandbox, Refused
from providers.sandbox.vast import faults as say
from providers.sandbox.vast.account import Contract, VastAccount
from providers.sandbox.vast.market import VastMarket, hardware, listed_name

PAGE_MAX = 25
CHARGES_MAX = 500
FILTERS = ("actual_status", "gpu_name", "verification")
FILTERABLE = frozenset({"id", "label", "actual_status", "gpu_name", "verification", "machine_id", "host_id"})


class BadRequest(ValueError):
    """A request that the API answers with 400; `args` are the error code and the text."""


class VastPages(ApiSandbox[VastAccount]):
    """Handlers that change nothing but keys."""

    def found(self, request: Request) -> Contract:
        """The instance that a command names. Raises `Refused`."""
        ref = int(request.path_params["ref"])
        contract = self.account.existing(ref)
        if contract is None:
            raise Refused(say.no_such_instance(ref))
        return contract

    async def deprecated(self, _request: Request, _body: dict[str, Any]) -> Response:
        """The old listing is closed."""
        text = "/api/v0/instances/ is deprecated. Use /api/v1/instances/ instead."
        return say.envelope(410, "deprecated_endpoint", text)

    async def page(self, request: Request, _body: dict[str, Any]) -> Response:
        """Keyset pages of at most 25, ordered by id."""
        account, now = self.account, self.now
        try:
            rows = [c.wire(now, account.port(c)) for c in account.listed()]
            rows = [row for row in rows if _matches(row, request.query_params.get("select_filters"))]
            limit = int(request.query_params.get("limit", PAGE_MAX))
            token = request.query_params.get("after_token")
            if token and self.fault("list_bad_token") is not None:
                raise BadRequest("invalid_token", "Invalid pagination token")
            after = _after(token)
        except BadRequest as error:
            return say.envelope(400, *error.args)
        except ValueError:
            return say.envelope(400, "invalid_request", "Error in query parameters")
        limit = 5 if limit <= 0 else min(limit, PAGE_MAX)
        total = len(rows)
        rest = sorted((row for row in rows if row["id"] > after), key=lambda row: int(row["id"]))
        page = [] if self.fault("list_empty") is not None else rest[:limit]
        more = len(rest) > limit and bool(page) and self.fault("list_truncated") is None
        return JSONResponse(
            {
                "success": True,
                "instances_found": len(page),
                "total_instances": total,
                "label_counts": {},
                "next_token": _token(page[-1]["id"]) if more else None,
                "instances": page,
            }
        )

    async def filters(self, _request: Request, _body: dict[str, Any]) -> Response:
        """The distinct combinations of the columns that the official client offers as filters."""
        account, now = self.account, self.now
        rows = {tuple(c.wire(now, None)[key] for key in FILTERS) for c in account.listed()}
        return JSONResponse({"filters": [dict(zip(FILTERS, row, strict=True)) for row in sorted(rows, key=str)]})

    async def gpu_names(self, _request: Request) -> Response:
        """Every GPU name on the market; open to anybody."""
        market = self.account.market
        return JSONResponse({"gpu_names": sorted({hardware(m, 1)["gpu_name"] for m in market.machines})})

    async def charges(self, request: Request, _body: dict[str, Any]) -> Response:
        """Return the bill by contract; both day bounds are required."""
        try:
            day = json.loads(request.query_params.get("select_filters", "{}")).get("day", {})
            since, until = (datetime.fromtimestamp(float(day[key]), UTC) for key in ("gte", "lte"))
            skip = max(_after(request.query_params.get("after_token")), 0)
            limit = min(int(request.query_params.get("limit", 100)), CHARGES_MAX)
        except (KeyError, TypeError, ValueError, AttributeError):
            text = "Must provide both 'day' gte and lte filters for instance charges"
            return JSONResponse({"success": False, "msg": text}, 400)
        rows = self.account.charges(since, until, cut=self.fault("charges_cut") is not None)
        page = rows[skip : skip + limit]
        more = skip + limit < len(rows)
        return JSONResponse(
            {
                "success": True,
                "count": len(page),
                "total": len(rows),
                "next_token": _token(skip + limit) if more else None,
                "results": page,
            }
        )

    async def user(self, _request: Request, _body: dict[str, Any]) -> Response:
        account = self.account
        return JSONResponse(
            {
                "id": 4242,
                "email": "team@example.com",
                "credit": round(float(account.left_usd()), 4),
                "balance": 0.0,
                "balance_threshold": 1.0,
                "ssh_key": account.ssh_keys[-1]["public_key"] if account.ssh_keys else "",
                "api_key": f"sandbox-user-secret-{self.API_KEY[-6:]}",
            }
        )

    async def keys(self, _request: Request, _body: dict[str, Any]) -> Response:
        """A bare array; 404 when there are none."""
        keys = self.account.ssh_keys
        return JSONResponse(keys) if keys else say.envelope(404, "no_ssh_key", "No ssh keys found.")

    async def add_key(self, _request: Request, body: dict[str, Any]) -> Response:
        """A key for instances made from now on."""
        if not body.get("ssh_key"):
            return say.envelope(400, "no_ssh_key", "No ssh key given.")
        keys = self.account.ssh_keys
        number = max((key["id"] for key in keys), default=0) + 1
        keys.append({"id": number, "user_id": 4242, "public_key": body["ssh_key"], "deleted_at": None})
        return JSONResponse({"success": True, "key": keys[-1]})

    async def change_key(self, request: Request, body: dict[str, Any]) -> Response:
        """Another public key under the same id."""
        key = self._key(request)
        if not body.get("ssh_key"):
            return say.envelope(400, "no_ssh_key", "No ssh key given.")
        key["public_key"] = body["ssh_key"]
        return JSONResponse({"success": True, "key": key})

    async def delete_key(self, request: Request, _body: dict[str, Any]) -> Response:
        self.account.ssh_keys.remove(self._key(request))
        return JSONResponse({"success": True})

    def _key(self, request: Request) -> dict[str, Any]:
        """The key that a command names. Raises `Refused`."""
        for key in self.account.ssh_keys:
            if key["id"] == request.path_params["key"]:
                return key
        raise Refused(say.envelope(404, "no_ssh_key", "No such ssh key."))

    async def attach_key(self, request: Request, body: dict[str, Any]) -> Response:
        contract = self.found(request)
        if not body.get("ssh_key"):
            return say.envelope(400, "no_ssh_key", "No ssh key given.")
        contract.ssh_keys.append(str(body["ssh_key"]))
        return JSONResponse({"success": True, "msg": "SSH key added to instance."})

    async def instance_keys(self, request: Request, _body: dict[str, Any]) -> Response:
        """The keys as JSON text inside JSON, as the real one does."""
        return JSONResponse({"success": True, "ssh_keys": json.dumps(self.found(request).ssh_keys)})

    async def request_logs(self, request: Request, _body: dict[str, Any]) -> Response:
        """The URL where the log text can be read without credentials."""
        ref = self.found(request).ref
        url = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}/logs/{ref}"
        return JSONResponse({"success": True, "result_url": url, "msg": "Log retrieval in progress."})

    async def log_text(self, request: Request) -> Response:
        contract = self.account.instances.get(int(request.path_params["ref"]))
        if contract is None:
            return PlainTextResponse("NoSuchKey", 404)
        text = contract.phases.at(self.now).msg or "waiting for the container"
        return PlainTextResponse(f"{contract.image}\n{text}\n")


def _token(value: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({"values": {"id": value}}).encode()).decode()


def _after(token: str | None) -> int:
    """The position a token stands for; -1 at the start."""
    if not token:
        return -1
    try:
        return int(json.loads(base64.urlsafe_b64decode(token))["values"]["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest("invalid_token", "Invalid pagination token") from error


def _matches(row: dict[str, Any], filters: str | None) -> bool:
    for key, condition in (json.loads(filters) if filters else {}).items():
        if key not in FILTERABLE:
            raise BadRequest("invalid_request", f"Error in query parameters: {key} is not a valid search key")
        have = row.get(key)
        if "eq" in condition and have != condition["eq"]:
            return False
        if "in" in condition and have not in condition["in"]:
            return False
    return True


class BadQuery(ValueError):
    """A search the real API answers with 400 invalid_request."""


CONTROLS = frozenset(
    {"type", "order", "limit", "allocated_storage", "disable_bundling", "target_reliability", "extra_ids",
     "show_incompatible", "template_id", "sort_option"}
)  # fmt: skip
ROWS_MAX = 64
ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
#: Filter names that the API converts before it compares.
ALIASES = {"reliability": "reliability2", "dphtotal": "dph_total", "gpu_totalram": "gpu_total_ram"}


def search(market: VastMarket, query: dict[str, Any], now: datetime) -> list[dict[str, Any]]:
    """The rows that match `query`, ordered, at most 64 whatever the limit says. Raises `BadQuery`."""
    bid = query.get("type") in {"bid", "interruptible"}
    disk_gb = float(query.get("allocated_storage", 8))
    conditions = {key: condition for key, condition in query.items() if key not in CONTROLS}
    for condition in conditions.values():
        if not isinstance(condition, dict):
            raise BadQuery(f"{condition!r} is not a valid search op")
    # Nearly every search names its GPUs, and rows of all others need not be made.
    gpus = conditions.get("gpu_name", {})
    parts = [part for part in market.slices() if _passes({"gpu_name": listed_name(part.machine)}, "gpu_name", gpus)]
    rows = [market.row(part, now, bid=bid, disk_gb=disk_gb) for part in parts]
    for key, condition in conditions.items():
        rows = [row for row in rows if _passes(row, key, condition)]
    for name, direction in reversed(query.get("order", [["score", "desc"]])):
        column = ALIASES.get(name, name)
        rows.sort(key=lambda row: -math.inf if row.get(column) is None else row[column], reverse=direction == "desc")
    return rows[: min(int(query.get("limit", ROWS_MAX)), ROWS_MAX)]


def _passes(row: dict[str, Any], key: str, condition: dict[str, Any]) -> bool:
    return all(_holds(row, key, op, value) for op, value in condition.items())


def _holds(row: dict[str, Any], key: str, op: str, wanted: Any) -> bool:
    have = _column(row, key)
    if isinstance(have, int | float) and isinstance(wanted, str):
        # The official client sends the numbers of a query as text.
        wanted = _number(wanted)
    if op in {"in", "notin"}:
        return (have in wanted) is (op == "in")
    if op in {"eq", "neq"}:
        return (have == wanted) is (op == "eq")
    if have is None:
        return op in {"lt", "lte"}
    if op not in ORDERINGS:
        raise BadQuery(f"{op} is not a valid search op")
    return ORDERINGS[op](have, wanted)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _column(row: dict[str, Any], key: str) -> Any:
    """The value a filter compares: geolocation by country code, flags as booleans.

    `id` matches nothing, as people observed.
    """
    if key == "id":
        return None
    if key == "geolocation":
        return row["geolocation"].rpartition(", ")[2]
    if key == "verified":
        return row["verification"] == "verified"
    if key == "datacenter":
        return row["hosting_type"] >= 1
    if key == "external":
        return bool(row["external"])
    name = ALIASES.get(key, key)
    if name not in row:
        raise BadQuery(f"Error in query parameters: {key} is not a valid search key")
    return row[name]
