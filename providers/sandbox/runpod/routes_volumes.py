"""RunPod's network volumes over HTTP: create, list, read, resize, delete, and their bill."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import ApiSandbox, Handler
from providers.sandbox.runpod.account import RunPodAccount, volume_usd_h
from providers.sandbox.runpod.faults import RunPodProblem
from providers.sandbox.runpod.market import DATA_CENTERS
from providers.sandbox.volumes import NetworkVolume, present

LEAST_GB, MOST_GB = 10, 4096
TYPES = ("STANDARD", "HIGH_PERFORMANCE")


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

    async def _list(self, _request: Request, _body: dict[str, Any]) -> Response:
        now = self._sandbox.now
        shown = [one for one in self._account.network_volumes.values() if one.listed(now)]
        return JSONResponse({"networkVolumes": [_wire(one) for one in shown]})

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
        """A volume that a pod uses is kept. What is answered then is not documented."""
        volume = self._known(request)
        users = [pod for pod in self._account.listed() if pod.ended != "TERMINATED"]
        if any(pod.order.network_volume == volume.ref for pod in users):
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
