"""TensorDock's HTTP API, served locally from its pages, from working clients, and from what was observed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.gpus.table import canonical
from providers.sandbox.agents import exported
from providers.sandbox.engine import SandboxCloud, TrueInstance
from providers.sandbox.faults import LostReply
from providers.sandbox.tensordock import faults as say
from providers.sandbox.tensordock.account import Account
from providers.sandbox.tensordock.instance import RUNNING, Machine, Phase
from providers.sandbox.tensordock.market import Place, Stock
from providers.sandbox.tensordock.routes_other import Side

Answer = Callable[[Request, Any], Awaitable[Response]]
IMAGES = frozenset({"ubuntu2404", "ubuntu2204", "debian12", "windows10", "ubuntu2404_nvidia_570"})
DISK_MIN_GB = 100
RAM_PER_GPU_MAX = 128
LEAST_USD = 1


class TensorDockSandbox(SandboxCloud):
    """One TensorDock organization. Paths and bodies are those of dashboard.tensordock.com."""

    name = "tensordock"
    FAULTS = say.FAULTS
    CREATE_FAULTS = say.CREATE_FAULTS
    DISTURBANCES = say.DISTURBANCES
    API_KEY = "sandbox-tensordock-token-1f3870be274f6c49"
    #: The older API's key; its token is the newer one's with this at its end, so that one replacement spoils both.
    V0_KEY = "sandbox-tensordock-v0-key"
    PAGED = False

    account: Account

    def environment(self, url: str) -> dict[str, str]:
        """All ours: TensorDock has no client of its own."""
        return {
            "TENSORDOCK_API_TOKEN": self.API_KEY,
            "TENSORDOCK_API_URL": f"{url}/api/v2",
            "TENSORDOCK_V0_URL": f"{url}/api/v0",
            "TENSORDOCK_V0_API_KEY": self.V0_KEY,
            "TENSORDOCK_V0_API_TOKEN": f"{self.API_KEY}-v0",
            "TENSORDOCK_IMAGE": "ubuntu2404_nvidia_570",
        }

    def reset(self) -> None:
        """A new account on a new market."""
        self.account = Account(self.engine)
        self._calls_s: deque[float] = deque()

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def reachable(self) -> list[str]:
        """Machines whose SSH answers now."""
        self.account.settle()
        return [m.ref for m in self.account.living.at(self.now) if m.reachable(self.now)]

    def variables(self, ref: str) -> Mapping[str, str]:
        """What its cloud-init exports."""
        return exported(self.account.machines[ref].cloud_init)

    def instances(self) -> list[TrueInstance]:
        """Every machine that has landed."""
        return [self._true(m) for m in self.account.machines.values() if m.created_at <= self.now]

    def _true(self, machine: Machine) -> TrueInstance:
        now = self.now
        return TrueInstance(
            cloud=self.name,
            ref=machine.ref,
            name=machine.name,
            status=machine.status(now),
            gpu=canonical(self.name, machine.stock.slug) or machine.stock.slug,
            gpu_count=machine.count,
            created_at=machine.created_at,
            ended_at=machine.ended_at,
            gpu_s=machine.meter.seconds("gpu", now),
            gpu_usd=machine.meter.usd("gpu", now),
            storage_usd=machine.meter.usd("storage", now),
        )

    def reprice(self, key: str, factor: Decimal) -> int:
        """A price belongs to a GPU at a location."""
        chosen = self.account.market.chosen(key)
        for stock in chosen:
            if stock.gpu_usd_h is not None:
                stock.gpu_usd_h *= factor
        return len(chosen)

    def withdraw(self, key: str) -> int:
        """Others take every GPU of that kind at that location."""
        chosen = self.account.market.chosen(key)
        for stock in chosen:
            stock.free = 0
        return len(chosen)

    def disturb(self, ref: str, what: str) -> None:
        """See `DISTURBANCES`."""
        if what not in say.DISTURBANCES:
            raise KeyError(what)
        if what == "credit_gone":
            self.account.credit_usd = self.account.spent_usd() - Decimal("0.01")
            self.account.settle()
            return
        machine = self.account.machines[ref]
        if what == "vanish":
            self.account.delete(machine)
            machine.gone_at = self.now
        elif what in {"ghost", "ghost_over"}:
            machine.ghost = what == "ghost"
        elif what == "released":
            self.account.stop(machine, releases=True)
        elif what == "gpu_taken":
            machine.stock.free = 0
        else:
            machine.phases.plan(self.now, (0.0, Phase(what)))

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        """Documented paths; the group names the generic faults that apply."""
        side = Side(self, lambda: self.account, (self.V0_KEY, f"{self.API_KEY}-v0"))
        table: list[tuple[str, str, str, Answer]] = [
            ("GET", "/locations", "search", self._locations),
            ("GET", "/hostnodes", "search", side.hostnodes),
            ("GET", "/hostnodes/{ref}", "search", side.hostnode),
            ("POST", "/instances", "create", self._create),
            ("GET", "/instances", "list", self._list),
            ("GET", "/instances/{ref}", "get", self._get),
            ("DELETE", "/instances/{ref}", "destroy", self._delete),
            ("POST", "/instances/{ref}/stop", "stop", self._stop),
            ("POST", "/instances/{ref}/start", "start", self._start),
            ("GET", "/secrets", "secrets", side.secrets),
            ("POST", "/secrets", "secrets", side.add_secret),
            ("GET", "/secrets/{ref}", "secrets", side.secret),
            ("DELETE", "/secrets/{ref}", "secrets", side.delete_secret),
        ]
        routes: list[BaseRoute] = [
            Route(f"/api/v2{path}", self._guarded(group, answer), methods=[method])
            for method, path, group, answer in table
        ]
        routes.append(Route("/api/v0/auth/test", side.v0_test, methods=["POST"]))
        routes.append(Route("/api/v0/billing/balance", side.v0_balance, methods=["POST"]))
        routes.append(Route("/api/v0/billing/summary", side.v0_summary, methods=["POST"]))
        return routes

    def _guarded(self, group: str, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            raw = await request.body()
            try:
                body = json.loads(raw) if raw else {}
            except ValueError:
                body = None
            if group == "create":
                self._note(body)
            refusal = self._refusal(group, request)
            if refusal is not None:
                return refusal
            return say.invalid("", "Invalid JSON") if body is None else await answer(request, body)

        return guarded

    def _note(self, body: Any) -> None:
        sent = _attributes(body)
        gpus = _part(_part(sent, "resources"), "gpus")
        slug = next(iter(gpus), "")
        offer = f"{sent.get('location_id')}/{slug}x{_part(gpus, slug).get('count')}"
        self.engine.note_create(self.name, sent.get("name"), offer).outcome = "refused"

    def _refusal(self, group: str, request: Request) -> Response | None:
        if self.fault(f"{group}_auth") is not None:
            return say.unauthorised()
        if request.headers.get("authorization") != f"Bearer {self.API_KEY}":
            return say.unauthorised()
        if (params := self.fault(f"{group}_429")) is not None:
            return say.too_often(str(params.get("form", "json")), params.get("retry_after", 5))
        if self.fault(f"{group}_503") is not None:
            return say.page(503)
        if not self.engine.timing.enforce_rate_limits:
            return None
        now_s = self.engine.clock.monotonic()
        while self._calls_s and now_s - self._calls_s[0] >= 60.0:
            self._calls_s.popleft()
        if len(self._calls_s) >= say.CALLS_A_MINUTE:
            return say.too_often(retry_after=max(1, round(60.0 - (now_s - self._calls_s[0]))))
        self._calls_s.append(now_s)
        return None

    async def _locations(self, _request: Request, _body: Any) -> Response:
        if self.fault("search_empty") is not None:
            return JSONResponse({"data": {"locations": []}})
        if self.fault("search_garbage") is not None:
            return say.page(200)
        if self.fault("search_error_inside") is not None:
            return say.failed("Internal server error", 500)
        return JSONResponse({"data": {"locations": self.account.market.locations()}})

    # ── create ───────────────────────────────────────────────────────────────────────────────────

    async def _create(self, _request: Request, body: Any) -> Response:
        for name, refusal in say.CREATE_REFUSALS.items():
            if self.fault(name) is not None:
                return refusal()
        if self.fault("create_lost_request") is not None:
            return LostReply()
        call, sent = self.engine.creates[-1], _attributes(body)
        found = self._checked(sent)
        if isinstance(found, Response):
            return found
        late = self.fault("create_lands_late")
        machine = self.account.deploy(*found, sent, self, float(late.get("after_s", 200)) if late is not None else 0.0)
        call.outcome, call.ref = ("committed" if late is None else "pending"), machine.ref
        if late is not None or self.fault("create_lost_reply") is not None:
            return LostReply()
        if self.fault("create_503_after") is not None:
            return say.page(503)
        if self.fault("create_garbage") is not None:
            return say.page(200)
        if self.fault("create_half_made") is not None:
            failure = {"status": 400, "error": "Virtual machine deployment failed"}
            return JSONResponse({**failure, "data": {"type": "virtualmachine", "id": machine.ref}})
        if (slow := self.fault("create_slow")) is not None:
            await self.engine.clock.sleep(float(slow.get("after_s", 70)))
        says = self.fault("create_says_creating")
        status = "running" if says is None else str(says.get("status", "creating"))
        made = {"type": "virtualmachine", "id": machine.ref, "name": machine.name, "status": status}
        return JSONResponse({"data": made}, 200 if says is None else 201)

    def _checked(self, sent: dict[str, Any]) -> tuple[Place, Stock] | Response:
        """Where it goes, its GPUs taken, or the refusal."""
        asked = _part(sent, "resources")
        gpus = _part(asked, "gpus")
        sizes = [asked.get(name) for name in ("vcpu_count", "ram_gb", "storage_gb")]
        if not all(isinstance(size, int) and size > 0 for size in sizes) or len(gpus) != 1:
            return say.invalid("data.attributes.resources", "Required")
        vcpus, ram_gb, disk_gb = (int(size or 0) for size in sizes)
        slug, count = next(iter(gpus)), _part(gpus, next(iter(gpus))).get("count")
        found = self.account.market.find(sent.get("location_id"), slug)
        if found is None or not isinstance(count, int) or count < 1 or sent.get("image") not in IMAGES:
            return say.invalid("data.attributes", "Invalid input")
        if disk_gb < DISK_MIN_GB or vcpus % 2:
            return say.invalid("data.attributes.resources", "storage must be at least 100, vCPUs must be even")
        problem = self._problem(sent, found[0], ram_gb / count)
        if problem is not None:
            return problem
        if disk_gb > found[1].disk_gb or not self.account.market.take(found[1], count):
            return say.failed(say.NO_NODES)
        return found

    def _problem(self, sent: dict[str, Any], place: Place, ram_per_gpu: float) -> Response | None:
        secret = self.account.secrets.get(str(sent.get("ssh_key_id")))
        if sent.get("image") != "windows10" and not sent.get("ssh_key") and secret is None:
            return say.invalid("data.attributes.ssh_key", "An SSH key is required")
        if ram_per_gpu > RAM_PER_GPU_MAX:
            return say.CREATE_REFUSALS["create_ratio"]()
        if sent.get("useDedicatedIp") and not place.own_ips:
            return say.CREATE_REFUSALS["create_no_ips"]()
        forwards = [f for f in sent.get("port_forwards") or [] if isinstance(f, dict)]
        if not sent.get("useDedicatedIp") and not any(f.get("internal_port") == 22 for f in forwards):
            return say.CREATE_REFUSALS["create_no_port_22"]()
        return say.CREATE_REFUSALS["create_no_credit"]() if self.account.left_usd() < LEAST_USD else None

    # ── machines ─────────────────────────────────────────────────────────────────────────────────

    async def _list(self, _request: Request, _body: Any) -> Response:
        rows = [machine.row(self.now) for machine in self.account.listed()]
        if self.fault("list_garbage") is not None:
            return say.page(200)
        if self.fault("list_error_inside") is not None:
            return say.failed("Internal server error", 500)
        if self.fault("list_unknown_shape") is not None:
            return JSONResponse({"data": {"type": "list"}})
        if self.fault("list_bare") is not None:
            return JSONResponse(rows)
        if self.fault("list_attributes") is not None:
            wrapped = {"type": "list", "id": "instances", "attributes": {"instances": rows}}
            return JSONResponse({"data": wrapped})
        if self.fault("list_documented") is not None:
            short = [
                {"type": "VM", "id": row["id"], "attributes": {key: row[key] for key in ("name", "status")}}
                for row in rows
            ]
            return JSONResponse({"data": {"instances": short}})
        return JSONResponse({"data": rows})

    async def _get(self, request: Request, _body: Any) -> Response:
        machine = self.account.shown(str(request.path_params["ref"]))
        if self.fault("get_missing_inside") is not None:
            return say.failed("Instance not found", 404)
        if machine is None or self.fault("get_missing") is not None:
            return say.missing()
        full = machine.in_full(self.now, self.account.port(machine))
        return JSONResponse({"data": full} if self.fault("get_wrapped") is not None else full)

    async def _stop(self, request: Request, _body: Any) -> Response:
        machine = self.account.existing(str(request.path_params["ref"]))
        if machine is None:
            return say.missing()
        status = machine.status(self.now)
        if status in {"stopping", "stopped", "stoppeddisassociated"}:
            return say.failed(f"Machine is {status}, therefore it cannot be stopped")
        self.account.stop(machine, releases=self.fault("stop_releases") is not None)
        return _acted(machine, "stopping")

    async def _start(self, request: Request, _body: Any) -> Response:
        machine = self.account.existing(str(request.path_params["ref"]))
        if machine is None:
            return say.missing()
        if machine.phases.at(self.now) == RUNNING or machine.status(self.now) == "starting":
            return say.failed(f"Machine is {machine.status(self.now)}, therefore it cannot be started")
        if self.fault("start_no_nodes") is not None or not self.account.start(machine):
            return say.failed(say.NO_NODES)
        return _acted(machine, "starting")

    async def _delete(self, request: Request, _body: Any) -> Response:
        machine = self.account.existing(str(request.path_params["ref"]))
        if machine is None:
            return say.missing()
        if self.fault("destroy_error_inside") is not None:
            return say.failed("Internal server error", 500)
        if self.fault("destroy_not_done") is None:
            self.account.delete(machine)
        if self.fault("destroy_lost_reply") is not None:
            return LostReply()
        if self.fault("destroy_503_after") is not None:
            return say.page(503)
        return JSONResponse({"data": {"type": "success", "attributes": {"message": "Instance deleted"}}})


def _acted(machine: Machine, status: str) -> Response:
    return JSONResponse({"data": {"type": "instance", "id": machine.ref, "attributes": {"status": status}}})


def _attributes(body: Any) -> dict[str, Any]:
    return _part(_part(body, "data"), "attributes")


def _part(row: Any, name: str) -> dict[str, Any]:
    part = row.get(name) if isinstance(row, dict) else None
    return part if isinstance(part, dict) else {}
