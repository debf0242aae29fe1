"""Vast.ai's HTTP API, served locally from the documented and observed behaviour."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.api import Handler, RateWindow
from providers.sandbox.faults import DEARER
from providers.sandbox.machines import SandboxMachine, keys_in
from providers.sandbox.nodes.boot import NodeBoot, container
from providers.sandbox.vast import faults as say
from providers.sandbox.vast.account import Contract, VastAccount, VastPhase
from providers.sandbox.vast.market import Slice
from providers.sandbox.vast.routes_read import BadQuery, VastPages, search

OUTBID = {
    "outbid_a": VastPhase("exited", cur="stopped", intended="stopped"),
    "outbid_b": VastPhase("exited", cur="stopped", intended="running"),
}
LABEL_MAX = 1024
#: The key of a container for itself, without its id at the end.
CONTAINER_KEY = "sandbox-instance-key-"


class VastSandbox(VastPages):
    """One Vast.ai account. Paths and bodies are those of console.vast.ai."""

    name = "vast"
    FAULTS = say.FAULTS
    DISTURBANCES = say.DISTURBANCES
    API_KEY = "sandbox-vast-key-5d41402abc4b2a76"

    def environment(self, url: str) -> dict[str, str]:
        """Both are read by the official client too."""
        return {"VAST_API_KEY": self.API_KEY, "VAST_URL": url}

    def reset(self) -> None:
        self.account = VastAccount(self)
        #: Searches are counted by the minute, every other endpoint by the pause since its last call.
        self._windows = {group: RateWindow(1, pause_s) for group, pause_s in say.THRESHOLDS_S.items()}
        self._windows["search"] = RateWindow(10, 60.0)

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def inside(self, ref: str) -> SandboxMachine:
        contract = self.account.instances[int(ref)]
        registered = (str(key["public_key"]) for key in self.account.ssh_keys)
        brought = keys_in("\n".join((contract.onstart, *contract.ssh_keys, *registered)))
        return SandboxMachine(contract.gpu, contract.gpu_count, brought)

    def boot(self, ref: str) -> NodeBoot | None:
        """Vast.ai runs the start script at each start, and adds the account's keys."""
        machine, contract = self.machine(ref), self.account.instances[int(ref)]
        registered = tuple(str(key["public_key"]) for key in self.account.ssh_keys)
        variables = {**self.variables(ref), **self.injected(ref)}
        keys = (*registered, *contract.ssh_keys)
        return None if machine is None else container(machine, contract.onstart, variables, keys)

    def variables(self, ref: str) -> Mapping[str, str]:
        return {pair[0]: pair[1] for pair in self.account.instances[int(ref)].extra_env}

    def reprice(self, key: str, factor: Decimal) -> int:
        """Prices belong to machines, so every slice of the machine moves."""
        market = self.account.market
        chosen = market.machines if key == "*" else [p.machine for p in [market.find(int(key))] if p is not None]
        for machine in chosen:
            if machine.gpu_usd_h is not None:
                machine.gpu_usd_h *= factor
        return len(chosen)

    def withdraw(self, key: str) -> int:
        """Somebody else rents it ("*": everything)."""
        market = self.account.market
        chosen = list(market.slices()) if key == "*" else [p for p in [market.find(int(key))] if p is not None]
        return sum(market.take(p.machine, p.size, p.offer_id) for p in chosen)

    def happen(self, ref: str, what: str) -> None:
        contract, now = self.account.instances[int(ref)], self.now
        if what in OUTBID:
            self.account.stop(contract, OUTBID[what])
        elif what == "expire":
            self.account.stop(contract)
        elif what in DEARER:
            contract.reprice(now, DEARER[what])
        elif what == "outbid_over":
            self.account.start(contract)
        elif what == "vanish":
            self.account.destroy(contract)
            contract.gone_at = now
        elif what == "gpu_taken":
            self.account.market.take(contract.machine, contract.machine.free)
        else:
            self._contact(contract, lost=what == "offline")

    def _contact(self, contract: Contract, *, lost: bool) -> None:
        contract.offline = lost
        if lost:
            contract.meter.stop_all(self.now)
            return
        contract.meter.start("storage", self.now, contract.storage_usd_h)
        if contract.phases.at(self.now).ports:
            contract.meter.start("gpu", self.now, contract.gpu_usd_h)

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        table: list[tuple[str, str, str, Handler]] = [
            ("POST", "/api/v0/bundles/", "search", self._bundles),
            ("GET", "/api/v0/bundles/", "search", self._bundles),
            ("PUT", "/api/v0/search/asks/", "search", self._bundles),
            ("PUT", "/api/v0/asks/{ref:int}/", "create", self._create),
            ("GET", "/api/v0/instances/", "list", self.deprecated),
            ("GET", "/api/v1/instances/", "list", self.page),
            ("GET", "/api/v0/instances/filters/", "user", self.filters),
            ("GET", "/api/v0/instances/{ref:int}/", "get", self._get),
            ("PUT", "/api/v0/instances/{ref:int}/", "state", self._change),
            ("DELETE", "/api/v0/instances/{ref:int}/", "destroy", self._destroy),
            ("PUT", "/api/v0/instances/reboot/{ref:int}/", "state", self._reboot),
            ("PUT", "/api/v0/instances/recycle/{ref:int}/", "state", self._reboot),
            ("PUT", "/api/v0/instances/bid_price/{ref:int}/", "bid", self._bid),
            ("PUT", "/api/v0/instances/request_logs/{ref:int}/", "state", self.request_logs),
            ("POST", "/api/v0/instances/{ref:int}/ssh/", "state", self.attach_key),
            ("GET", "/api/v0/instances/{ref:int}/ssh/", "get", self.instance_keys),
            ("GET", "/api/v0/ssh/", "user", self.keys),
            ("POST", "/api/v0/ssh/", "user", self.add_key),
            ("PUT", "/api/v0/ssh/{key:int}/", "user", self.change_key),
            ("DELETE", "/api/v0/ssh/{key:int}/", "user", self.delete_key),
            ("GET", "/api/v0/users/current", "user", self.user),
            ("GET", "/api/v0/users/current/", "user", self.user),
            ("GET", "/api/v0/charges/", "charges", self.charges),
        ]
        return [
            *self.paths(table),
            Route("/logs/{ref:int}", self.log_text, methods=["GET"]),
            Route("/api/v0/gpu_names/unique/", self.gpu_names, methods=["GET"]),
        ]

    def key_refusal(self, request: Request, group: str) -> Response | None:
        """Without a key the answer is another one than with a wrong key; a search needs none."""
        given = request.headers.get("authorization")
        if given is None and group == "search":
            return None
        if given == f"Bearer {self.API_KEY}" or self._is_own(request, given):
            return None
        return say.not_authorised("403" if given is None else "404")

    def _is_own(self, request: Request, given: str | None) -> bool:
        """Whether a container shows the key that it was given, for a call about itself."""
        ref = request.path_params.get("ref")
        is_itself = request.url.path.endswith(f"/api/v0/instances/{ref}/")
        return is_itself and given == f"Bearer {CONTAINER_KEY}{ref}"

    def injected(self, ref: str) -> Mapping[str, str]:
        """Its id, and the key that may read, start, stop and destroy this container only."""
        return {"CONTAINER_ID": ref, "CONTAINER_API_KEY": f"{CONTAINER_KEY}{ref}"}

    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """An offer is named in the path."""
        return body.get("label"), str(request.path_params["ref"])

    def malformed(self) -> Response:
        return say.envelope(400, "invalid_request", "Invalid json body")

    def rate_windows(self, group: str) -> tuple[RateWindow, ...]:
        """One for each endpoint."""
        return (self._windows[group],)

    async def _bundles(self, request: Request, body: dict[str, Any]) -> Response:
        if self.fault("search_quota") is not None:
            return say.search_quota(self.now)
        try:
            query = json.loads(request.query_params["q"]) if "q" in request.query_params else body.get("q", body)
            return JSONResponse({"offers": search(self.account.market, query, self.now)})
        except BadQuery as error:
            return say.envelope(400, "invalid_request", str(error))
        except (ValueError, TypeError, AttributeError):
            return say.envelope(400, "invalid_request", "Invalid json body")

    async def _create(self, request: Request, body: dict[str, Any]) -> Response:
        ask = int(request.path_params["ref"])
        part = self.account.market.find(ask)
        if part is None:
            return say.stale(ask)
        problem = self._problem(part, body)
        if problem is not None:
            return problem
        lands_in_s = self.lands_in_s()
        if self.fault("create_half_made") is not None or part.outbids(body.get("price")):
            contract = self.account.half_make(part, body)
            self.committed(contract.ref, 0.0)
            text = "Your bid is too low to start this instance."
            return JSONResponse({"success": False, "error": "bid_too_low", "msg": text, "new_contract": contract.ref})
        contract = self.account.rent(part, body, lands_in_s)
        self.committed(contract.ref, lands_in_s)
        secret = f"{CONTAINER_KEY}{contract.ref}"
        return JSONResponse({"success": True, "new_contract": contract.ref, "instance_api_key": secret})

    def _problem(self, part: Slice, body: dict[str, Any]) -> Response | None:
        if not body.get("image"):
            return say.envelope(500, "server_error", "Something went wrong on the server")
        if float(body.get("disk") or 10) < 8 or float(body.get("disk") or 10) > part.machine.disk_gb:
            return say.BAD_DISK
        if len(str(body.get("label") or "")) > 256 or len(str(body.get("onstart") or "")) > 4048:
            return say.envelope(400, "invalid_args", "error 400/3467: Invalid args: too long")
        price = body.get("price")
        if price is not None and not 0.001 <= float(price) <= 128:
            return say.envelope(400, "invalid_price", "error 400/3490: invalid_price")
        if self.account.left_usd() <= 0:
            return say.LACKS_CREDIT
        return None

    async def _get(self, request: Request, body: dict[str, Any]) -> Response:
        contract = self.account.shown(int(request.path_params["ref"]))
        row = None if contract is None else contract.wire(self.now, self.account.port(contract))
        return JSONResponse({"instances": row})

    async def _change(self, request: Request, body: dict[str, Any]) -> Response:
        contract = self.found(request)
        if "label" in body:
            if len(str(body["label"])) > LABEL_MAX:
                return say.envelope(400, "label_too_long", "Label too long.")
            contract.name = body["label"]
            return JSONResponse({"success": True})
        if body.get("state") == "stopped":
            self.account.stop(contract)
            return JSONResponse({"success": True})
        if body.get("state") != "running":
            return say.envelope(400, "invalid_args", "error 400/3467: Invalid args: state")
        if (queued := self.fault("start_queued")) is not None:
            self.account.queue_start(contract, queued.get("flips_s"))
        elif self.account.start(contract):
            return JSONResponse({"success": True})
        text = "Required resources are currently unavailable, state change queued."
        return JSONResponse({"success": False, "error": "resources_unavailable", "msg": text})

    async def _destroy(self, request: Request, body: dict[str, Any]) -> Response:
        contract = self.found(request)
        if contract.ended_at is not None:
            return say.no_such_instance(contract.ref)
        if self.fault("destroy_not_done") is None:
            self.account.destroy(contract)
        return JSONResponse({"success": True})

    async def _reboot(self, request: Request, body: dict[str, Any]) -> Response:
        self.account.reboot(self.found(request))
        return JSONResponse({"success": True})

    async def _bid(self, request: Request, body: dict[str, Any]) -> Response:
        ref = int(request.path_params["ref"])
        contract = self.account.existing(ref)
        if contract is None:
            return say.envelope(404, "no_such_instance", "Instance with that ID does not exist.")
        # Without a price the bid becomes one that wins, as the official client's help says.
        price = contract.min_bid_usd_h if body.get("price") is None else body["price"]
        if float(price) < 0.001:
            return say.envelope(400, "invalid_args", "Please set a bid price >= 0.001.")
        contract.bid_usd_h = contract.gpu_usd_h = Decimal(str(price))
        contract.meter.change("gpu", self.now, contract.gpu_usd_h)
        return JSONResponse({"success": True})
