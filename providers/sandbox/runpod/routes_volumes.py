"""RunPod's network volumes over HTTP: create, list, read, resize, delete, and their bill."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import ApiSandbox, Handler
from providers.sandbox.network_volume import NetworkVolume, present
from providers.sandbox.runpod.account import RunPodAccount, volume_usd_h
from providers.sandbox.runpod.faults import WENT_WRONG, RunPodProblem, problem
from providers.sandbox.runpod.market import DATA_CENTERS

LEAST_GB, MOST_GB = 10, 4096
TYPES = ("STANDARD", "HIGH_PERFORMANCE")
#: Rows of one page. How many the service gives is not documented.
PAGE_MAX = 1000


class NetworkVolumes:
    """The handlers of a RunPod sandbox's volumes."""

    def __init__(self, sandbox: ApiSandbox[RunPodAccount]) -> None:
        self._sandbox = sandbox

    @property
    def _account(self) -> RunPodAccount:
        return self._sandbox.account

    def table(self) -> dict[str, dict[str, tuple[str, Handler]]]:
        """Path → method → group of calls and handler. A create is one of the account's creates, with their faults."""
        return {
            "/v2/network-volumes": {"GET": ("list", self._list), "POST": ("create", self._create)},
            "/v2/network-volumes/{volume_id}": {
                "GET": ("get", self._get),
                "PATCH": ("", self._resize),
                "DELETE": ("destroy", self._delete),
            },
        }

    async def _create(self, _request: Request, body: dict[str, Any]) -> Response:
        unknown = [name for name in body if name not in ("name", "size", "dataCenter", "type")]
        errors = [f"$: additional properties '{name}' not allowed" for name in unknown]
        errors += [f"$: missing property '{name}'" for name in ("name", "size", "dataCenter") if not body.get(name)]
        size = body.get("size")
        if size is not None and not _is_size(size):
            errors.append(f"$.size: want an integer from {LEAST_GB} to {MOST_GB}")
        if body.get("type", TYPES[0]) not in TYPES:
            errors.append(f"$.type: value must be one of {', '.join(TYPES)}")
        if errors:
            raise RunPodProblem(422, "Request validation failed.", tuple(errors))
        if body["dataCenter"] not in {name for name, _, _ in DATA_CENTERS}:
            raise RunPodProblem(400, f"data center '{body['dataCenter']}' has no network volumes")
        lands_in_s = self._sandbox.lands_in_s()
        volume = self._account.add_volume(body["name"], Decimal(body["size"]), body["dataCenter"], lands_in_s)
        self._sandbox.committed(volume.ref, lands_in_s)
        return JSONResponse(_wire(volume), 201)

    async def _list(self, request: Request, _body: dict[str, Any]) -> Response:
        """In cursor pages, as the official client reads them. The cursor is the id of the last volume before."""
        now, sandbox, cursor = self._sandbox.now, self._sandbox, request.query_params.get("cursor")
        if cursor == "broken":
            return problem(500, WENT_WRONG)
        there = [one for one in self._account.network_volumes.values() if one.listed(now)]
        short = sandbox.fault_value("volumes_short", "rows", 0)
        there = there if short is None else there[: int(short)]
        ids = [one.ref for one in there]
        start = ids.index(cursor) + 1 if cursor in ids else 0
        limit = int(sandbox.fault_value("small_pages", "rows", 1) or PAGE_MAX)
        rows, more = there[start : start + limit], start + limit < len(there)
        pagination = {"nextCursor": rows[-1].ref if more else None, "hasNextPage": more}
        if cursor is None and sandbox.fault("page_error") is not None:
            rows, pagination = rows[: len(rows) // 2], {"nextCursor": "broken", "hasNextPage": True}
        body: dict[str, Any] = {"networkVolumes": [_wire(one) for one in rows]}
        if sandbox.fault("no_pagination") is None:
            body["pagination"] = pagination
        return JSONResponse(body)

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(_wire(self._known(request)))

    async def _resize(self, request: Request, body: dict[str, Any]) -> Response:
        volume = self._known(request)
        size = body.get("size", int(volume.size_gb))
        if not _is_size(size) or size < volume.size_gb:
            raise RunPodProblem(400, "the size of a network volume can only be increased")
        volume.name = body.get("name", volume.name)
        volume.size_gb = Decimal(size)
        volume.meter.change("storage", self._sandbox.now, volume_usd_h(volume.size_gb))
        return JSONResponse(_wire(volume))

    async def _delete(self, request: Request, _body: dict[str, Any]) -> Response:
        """A volume that a pod mounts is kept, or deleted under the pod: neither is documented."""
        volume = self._known(request)
        users = [pod for pod in self._account.listed() if pod.ended != "TERMINATED"]
        mounted = any(pod.order.network_volume == volume.ref for pod in users)
        if mounted and self._sandbox.fault("mounted_volume_deleted") is None:
            raise RunPodProblem(400, "network volume is in use by a pod")
        if self._sandbox.fault("delete_ignored") is None:
            volume.end(self._sandbox.now, 0.0)
        return Response(status_code=204)

    def _known(self, request: Request) -> NetworkVolume:
        volume = present(self._account.network_volumes, request.path_params["volume_id"], self._sandbox.now)
        if volume is None:
            raise RunPodProblem(404, "network volume not found")
        return volume


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and LEAST_GB <= size <= MOST_GB


def _wire(volume: NetworkVolume) -> dict[str, Any]:
    return {
        "id": volume.ref,
        "name": volume.name,
        "size": int(volume.size_gb),
        "dataCenter": volume.region,
        "type": TYPES[0],
    }
