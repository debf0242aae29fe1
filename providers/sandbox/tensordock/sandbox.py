"""TensorDock's HTTP API, served locally from its pages, from working clients, and from what was observed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.agents import exported
from providers.sandbox.api import ApiSandbox, Endpoint, Handler, RateWindow, Refused, shows
from providers.sandbox.machines import SandboxMachine, keys_in
from providers.sandbox.nodes.boot import NodeBoot, virtual_machine
from providers.sandbox.tensordock import faults as say
from providers.sandbox.tensordock.account import RUNNING, TensorDockAccount, TensorDockInstance, TensorDockPhase
from providers.sandbox.tensordock.market import Place, TensorDockStock
from providers.sandbox.timeline import usd

IMAGES = frozenset({"ubuntu2404", "ubuntu2204", "debian12", "windows10", "ubuntu2404_nvidia_570"})
#: Whom its images let in.
LOGIN_USER = "user"
DISK_MIN_GB = 100
RAM_PER_GPU_MAX = 128
LEAST_USD = 1
SECRET_TYPES = frozenset({"SSHKEY", "SECRET", "GENERIC", "ssh"})


class TensorDockSandbox(ApiSandbox[TensorDockAccount]):
    """One TensorDock organization. Paths and bodies are those of dashboard.tensordock.com."""

    name = "tensordock"
    FAULTS = say.FAULTS
    DISTURBANCES = say.DISTURBANCES
    API_KEY = "sandbox-tensordock-token-1f3870be274f6c49"
    #: The older API's key; its token is the newer one's with this at its end, so that one replacement spoils both.
    V0_KEY = "sandbox-tensordock-v0-key"
    PAGED = False

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
        self.account = TensorDockAccount(self)
        self._calls = RateWindow(100, 60.0)

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def inside(self, ref: str) -> SandboxMachine:
        machine = self.account.instances[ref]
        return SandboxMachine(machine.gpu, machine.gpu_count, keys_in(json.dumps(machine.cloud_init)), LOGIN_USER)

    def boot(self, ref: str) -> NodeBoot | None:
        """TensorDock boots Ubuntu with the create's cloud-init, which brings the keys."""
        machine = self.machine(ref)
        return None if machine is None else virtual_machine(machine, self.account.instances[ref].cloud_init, ())

    def variables(self, ref: str) -> Mapping[str, str]:
        return exported(self.account.instances[ref].cloud_init)

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

    def happen(self, ref: str, what: str) -> None:
        machine = self.account.instances[ref]
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
            machine.phases.plan(self.now, (0.0, TensorDockPhase(what)))

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        table: list[tuple[str, str, str, Handler]] = [
            ("GET", "/locations", "search", shows(lambda: {"data": {"locations": self.account.market.locations()}})),
            ("GET", "/hostnodes", "search", self.hostnodes),
            ("GET", "/hostnodes/{ref}", "search", self.hostnode),
            ("POST", "/instances", "create", self._create),
            ("GET", "/instances", "list", self._list),
            ("GET", "/instances/{ref}", "get", self._get),
            ("DELETE", "/instances/{ref}", "destroy", self._delete),
            ("POST", "/instances/{ref}/stop", "stop", self._stop),
            ("POST", "/instances/{ref}/start", "start", self._start),
            ("GET", "/secrets", "secrets", self.secrets),
            ("POST", "/secrets", "secrets", self.add_secret),
            ("GET", "/secrets/{ref}", "secrets", self.secret),
            ("DELETE", "/secrets/{ref}", "secrets", self.delete_secret),
        ]
        documented = self.paths((method, f"/api/v2{path}", group, answer) for method, path, group, answer in table)
        return [*documented, *self.v0_routes()]

    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """An offer is so many GPUs at a location."""
        sent = _part(body, "data", "attributes")
        gpus = _part(sent, "resources", "gpus")
        slug = next(iter(gpus), "")
        return sent.get("name"), f"{sent.get('location_id')}/{slug}x{_part(gpus, slug).get('count')}"

    def malformed(self) -> Response:
        return say.invalid("", "Invalid JSON")

    def rate_windows(self, group: str) -> tuple[RateWindow, ...]:
        """One for the whole organization."""
        return (self._calls,)

    # ── create ───────────────────────────────────────────────────────────────────────────────────

    async def _create(self, _request: Request, body: dict[str, Any]) -> Response:
        sent = _part(body, "data", "attributes")
        place, stock = self._checked(sent)
        lands_in_s = self.lands_in_s()
        machine = self.account.deploy(place, stock, sent, lands_in_s)
        self.committed(machine.ref, lands_in_s)
        if (slow_s := self.fault_value("create_slow", "after_s", 70)) is not None:
            await self.engine.clock.sleep(float(slow_s))
        says = self.fault_value("create_says_creating", "status", "creating")
        made = {"type": "virtualmachine", "id": machine.ref, "name": machine.name, "status": says or "running"}
        return JSONResponse({"data": made}, 200 if says is None else 201)

    def _checked(self, sent: dict[str, Any]) -> tuple[Place, TensorDockStock]:
        """Where it goes, its GPUs taken. Raises `Refused`."""
        asked = _part(sent, "resources")
        gpus = _part(asked, "gpus")
        sizes = [asked.get(name) for name in ("vcpu_count", "ram_gb", "storage_gb")]
        if not all(isinstance(size, int) and size > 0 for size in sizes) or len(gpus) != 1:
            raise Refused(say.invalid("data.attributes.resources", "Required"))
        vcpus, ram_gb, disk_gb = (int(size or 0) for size in sizes)
        slug, count = next(iter(gpus)), _part(gpus, next(iter(gpus))).get("count")
        found = self.account.market.find(sent.get("location_id"), slug)
        if found is None or not isinstance(count, int) or count < 1 or sent.get("image") not in IMAGES:
            raise Refused(say.invalid("data.attributes", "Invalid input"))
        if disk_gb < DISK_MIN_GB or vcpus % 2:
            text = "storage must be at least 100, vCPUs must be even"
            raise Refused(say.invalid("data.attributes.resources", text))
        problem = self._problem(sent, found[0], ram_gb / count)
        if problem is not None:
            raise Refused(problem)
        if disk_gb > found[1].disk_gb or not self.account.market.take(found[1], count):
            raise Refused(say.failed(say.NO_NODES))
        return found

    def _problem(self, sent: dict[str, Any], place: Place, ram_per_gpu: float) -> Response | None:
        secret = self.account.secrets.get(str(sent.get("ssh_key_id")))
        if sent.get("image") != "windows10" and not sent.get("ssh_key") and secret is None:
            return say.invalid("data.attributes.ssh_key", "An SSH key is required")
        if ram_per_gpu > RAM_PER_GPU_MAX:
            return say.WRONG_RATIO
        if sent.get("useDedicatedIp") and not place.own_ips:
            return say.NO_ADDRESSES
        forwards = [f for f in sent.get("port_forwards") or [] if isinstance(f, dict)]
        if not sent.get("useDedicatedIp") and not any(f.get("internal_port") == 22 for f in forwards):
            return say.PORT_22_MISSING
        return say.LACKS_CREDIT if self.account.left_usd() < LEAST_USD else None

    # ── machines ─────────────────────────────────────────────────────────────────────────────────

    async def _list(self, _request: Request, _body: dict[str, Any]) -> Response:
        rows = [machine.row(self.now) for machine in self.account.listed()]
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

    def _found(self, request: Request) -> TensorDockInstance:
        """The machine that a command names. Raises `Refused`."""
        machine = self.account.existing(request.path_params["ref"])
        if machine is None:
            raise Refused(say.missing())
        return machine

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self.account.shown(request.path_params["ref"])
        if machine is None:
            return say.missing()
        full = machine.in_full(self.now, self.account.port(machine))
        return JSONResponse({"data": full} if self.fault("get_wrapped") is not None else full)

    async def _stop(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self._found(request)
        status = machine.status(self.now)
        if status in {"stopping", "stopped", "stoppeddisassociated"}:
            return say.failed(f"Machine is {status}, therefore it cannot be stopped")
        self.account.stop(machine, releases=self.fault("stop_releases") is not None)
        return _acted(machine, "stopping")

    async def _start(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self._found(request)
        if machine.phases.at(self.now) == RUNNING or machine.status(self.now) == "starting":
            return say.failed(f"Machine is {machine.status(self.now)}, therefore it cannot be started")
        if self.account.left_usd() < 0:
            return say.LACKS_CREDIT
        if not self.account.start(machine):
            return say.failed(say.NO_NODES)
        return _acted(machine, "starting")

    async def _delete(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self._found(request)
        if self.fault("destroy_not_done") is None:
            self.account.delete(machine)
        return JSONResponse({"data": {"type": "success", "attributes": {"message": "Instance deleted"}}})

    # ── around the instances ─────────────────────────────────────────────────────────────────────

    async def hostnodes(self, request: Request, _body: dict[str, Any]) -> Response:
        slug = request.query_params.get("gpu")
        nodes = [
            node
            for node in self.account.market.hostnodes()
            if slug is None or any(gpu["v0Name"] == slug for gpu in node["available_resources"]["gpus"])
        ]
        return JSONResponse({"data": {"hostnodes": nodes}})

    async def hostnode(self, request: Request, _body: dict[str, Any]) -> Response:
        wanted = request.path_params["ref"]
        found = next((node for node in self.account.market.hostnodes() if node["id"] == wanted), None)
        return say.missing("Hostnode") if found is None else JSONResponse({"data": found})

    async def secrets(self, _request: Request, _body: dict[str, Any]) -> Response:
        """All secrets, without their values."""
        rows = [{k: v for k, v in secret.items() if k != "value"} for secret in self.account.secrets.values()]
        return JSONResponse({"data": {"secrets": rows}})

    async def add_secret(self, _request: Request, body: dict[str, Any]) -> Response:
        attributes = _part(body, "data", "attributes")
        name, value, kind = (attributes.get(key) for key in ("name", "value", "type"))
        if not isinstance(name, str) or not isinstance(value, str) or kind not in SECRET_TYPES:
            return say.invalid("data.attributes", "Invalid input")
        made = self.account.add_secret(name, value, str(kind))
        return JSONResponse({"data": {k: v for k, v in made.items() if k != "value"}}, 201)

    async def secret(self, request: Request, _body: dict[str, Any]) -> Response:
        """One secret; only keys show their value."""
        found = self.account.secrets.get(str(request.path_params["ref"]))
        if found is None:
            return say.missing("Secret")
        public = found["type"] in {"SSHKEY", "ssh"}
        return JSONResponse({"data": {k: v for k, v in found.items() if public or k != "value"}})

    async def delete_secret(self, request: Request, _body: dict[str, Any]) -> Response:
        found = self.account.secrets.pop(str(request.path_params["ref"]), None)
        if found is None:
            return say.missing("Secret")
        return JSONResponse({"data": {"type": "success", "attributes": {"message": "Secret deleted"}}})

    # ── v0 ───────────────────────────────────────────────────────────────────────────────────────

    def v0_routes(self) -> list[Route]:
        calls = {
            "auth/test": lambda _: self._success(),
            "billing/balance": self._v0_balance,
            "billing/summary": self._v0_summary,
        }
        with_key = [Route(f"/api/v0/{path}", self._v0_call(answer), methods=["POST"]) for path, answer in calls.items()]
        return [*with_key, *self.paths([("GET", "/api/v0/client/deploy/hostnodes", "public", self._v0_hosts)])]

    async def _v0_hosts(self, _request: Request, _body: dict[str, Any]) -> Response:
        return self._success(hostnodes=self.account.market.v0_hosts())

    def key_refusal(self, request: Request, group: str) -> Response | None:
        """The older API's list of hosts is open to anybody."""
        return None if group == "public" else super().key_refusal(request, group)

    def _v0_call(self, answer: Callable[[dict[str, str]], Response]) -> Endpoint:
        """A call with a form that holds the key. Its refusals come with 200."""

        async def endpoint(request: Request) -> Response:
            form = dict(parse_qsl((await request.body()).decode()))
            try:
                self.refuse("v0")
            except Refused as refused:
                return refused.answer
            if (form.get("api_key", ""), form.get("api_token", "")) != (self.V0_KEY, f"{self.API_KEY}-v0"):
                return say.V0_REFUSED
            return answer(form)

        return endpoint

    def _success(self, **body: Any) -> Response:
        word: Any = "true" if self.fault("v0_words") is not None else True
        return JSONResponse({"success": word, **body})

    def _v0_balance(self, _form: dict[str, str]) -> Response:
        """Credit left and the rate of everything."""
        account = self.account
        return self._success(balance=usd(account.left_usd()), hourly_cost=usd(account.rate_usd_h()))

    def _v0_summary(self, form: dict[str, str]) -> Response:
        try:
            return self._success(**self.account.expenses(form.get("period", "")))
        except ValueError:
            return JSONResponse({"success": False, "error": "Invalid period"})


def _acted(machine: TensorDockInstance, status: str) -> Response:
    return JSONResponse({"data": {"type": "instance", "id": machine.ref, "attributes": {"status": status}}})


def _part(row: Any, *path: str) -> dict[str, Any]:
    """The object at the end of this path into a body; empty where there is none."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row if isinstance(row, dict) else {}
