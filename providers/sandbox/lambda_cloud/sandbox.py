"""Lambda's HTTP API, served locally from its OpenAPI document 1.10.0 and from what people observed."""

from __future__ import annotations

import base64
import json
import re
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
from providers.sandbox.lambda_cloud import faults as say
from providers.sandbox.lambda_cloud.account import Account
from providers.sandbox.lambda_cloud.instance import Machine
from providers.sandbox.lambda_cloud.routes_other import Side

Answer = Callable[[Request, dict[str, Any]], Awaitable[Response]]
LAUNCHES_A_MINUTE = 5
_TAG_KEY = re.compile(r"[a-z][a-z0-9:-]+")
_HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
USER_DATA_MAX = 1_000_000


class LambdaSandbox(SandboxCloud):
    """One Lambda account. Paths and bodies are those of cloud.lambda.ai."""

    name = "lambda"
    FAULTS = say.FAULTS
    ALIASES = say.ALIASES
    CREATE_FAULTS = say.CREATE_FAULTS
    DISTURBANCES = say.DISTURBANCES
    API_KEY = "secret_sandbox-lambda_6f1ed002ab5595859014ebf0951522d9"
    STAPLE = "QuadroRTX6000"
    PAGED = False

    account: Account

    def environment(self, url: str) -> dict[str, str]:
        """The second one is ours: Lambda has no client of its own."""
        return {"LAMBDA_API_KEY": self.API_KEY, "LAMBDA_API_URL": f"{url}/api/v1"}

    def reset(self) -> None:
        """A new account on a new market."""
        self.account = Account(self.engine)
        self._last_call_s: float | None = None
        self._launches_s: list[float] = []

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def reachable(self) -> list[str]:
        """Instances whose SSH answers now."""
        return [m.ref for m in self.account.living.at(self.now) if m.reachable(self.now)]

    def variables(self, ref: str) -> Mapping[str, str]:
        """What its cloud-init exports."""
        return exported(self.account.machines[ref].user_data)

    def instances(self) -> list[TrueInstance]:
        """Every instance that has landed."""
        return [self._true(m) for m in self.account.machines.values() if m.created_at <= self.now]

    def _true(self, machine: Machine) -> TrueInstance:
        now = self.now
        return TrueInstance(
            cloud=self.name,
            ref=machine.ref,
            name=machine.name,
            status=machine.status(now),
            gpu=canonical(self.name, machine.kind.gpu) or machine.kind.gpu,
            gpu_count=machine.kind.gpus,
            created_at=machine.created_at,
            ended_at=machine.ended_at,
            gpu_s=machine.billed_s(now),
            gpu_usd=machine.billed_usd(now),
            storage_usd=Decimal(0),
        )

    def reprice(self, key: str, factor: Decimal) -> int:
        """A price belongs to a type, so it moves in every region."""
        kinds = {kind.name: kind for kind, _ in self.account.market.chosen(key)}
        for kind in kinds.values():
            kind.cents = round(kind.cents * factor)
        return len(kinds)

    def withdraw(self, key: str) -> int:
        """Others take every machine of that type in that region."""
        chosen = self.account.market.chosen(key)
        for kind, place in chosen:
            kind.free[place] = 0
        return len(chosen)

    def disturb(self, ref: str, what: str) -> None:
        """See `DISTURBANCES`."""
        if what not in say.DISTURBANCES:
            raise KeyError(what)
        if what == "account_inactive":
            self.account.inactive = True
            return
        machine = self.account.machines[ref]
        if what == "vanish":
            self.account.terminate(machine)
            machine.gone_at = self.now
        elif what == "shutdown":
            machine.powered_off = True
        elif what == "preempted":
            machine.phases.plan(self.now, (0.0, "preempted"))
            machine.meter.stop_all(self.now)
        else:
            machine.phases.plan(self.now, (0.0, "active" if what == "healthy" else "unhealthy"))

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        """Documented paths; the group names the generic faults that apply."""
        side = Side(self, lambda: self.account)
        table: list[tuple[str, str, str, Answer]] = [
            ("GET", "/instance-types", "search", self._types),
            ("POST", "/instance-operations/launch", "create", self._launch),
            ("POST", "/instance-operations/terminate", "destroy", self._terminate),
            ("POST", "/instance-operations/restart", "restart", self._restart),
            ("GET", "/instances", "list", self._list),
            ("GET", "/instances/{ref}", "get", self._get),
            ("POST", "/instances/{ref}", "misc", self._rename),
            ("GET", "/ssh-keys", "keys", side.keys),
            ("POST", "/ssh-keys", "keys", side.add_key),
            ("DELETE", "/ssh-keys/{ref}", "keys", side.delete_key),
            ("GET", "/regions", "misc", side.regions),
            ("GET", "/images", "misc", side.images),
            ("GET", "/file-systems", "misc", side.file_systems),
            ("POST", "/filesystems", "misc", side.add_file_system),
            ("DELETE", "/filesystems/{ref}", "misc", side.delete_file_system),
            ("GET", "/firewall-rules", "misc", side.rules),
            ("PUT", "/firewall-rules", "misc", side.put_rules),
            ("GET", "/audit-events", "audit", side.audit),
        ]
        routes: list[BaseRoute] = [
            Route(f"/api/v1{path}", self._guarded(group, answer), methods=[method])
            for method, path, group, answer in table
        ]
        routes.append(Route("/{rest:path}", self._unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]))
        return routes

    async def _unknown(self, _request: Request) -> Response:
        return say.error(404, "global/not-found", "The requested resource was not found.")

    def _guarded(self, group: str, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            raw = await request.body()
            try:
                body = json.loads(raw) if raw else {}
            except ValueError:
                body = None
            call = None
            if group == "create":
                sent = body if isinstance(body, dict) else {}
                offer = f"{sent.get('instance_type_name')}/{sent.get('region_name')}"
                call = self.engine.note_create(self.name, sent.get("name"), offer)
                call.outcome = "refused"
            refusal = self._refusal(group, request)
            if refusal is not None:
                return refusal
            return await answer(request, body) if isinstance(body, dict) else say.invalid()

        return guarded

    def _refusal(self, group: str, request: Request) -> Response | None:
        if self.fault(f"{group}_auth") is not None or not self._authorised(request):
            return say.not_authorised()
        if (params := self.fault(f"{group}_429")) is not None:
            return say.too_often(str(params.get("form", "json")), params.get("retry_after", 1))
        if self.fault(f"{group}_503") is not None:
            return say.unavailable()
        if self.fault(f"{group}_inactive") is not None or (group == "create" and self.account.inactive):
            return say.inactive()
        if (params := self.fault(f"{group}_provider")) is not None:
            return say.provider_error(int(params.get("status", 500)))
        return self._too_soon(group)

    def _authorised(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        basic = base64.b64encode(f"{self.API_KEY}:".encode()).decode()
        return given in {f"Bearer {self.API_KEY}", f"Basic {basic}", f"Basic {self.API_KEY}"}

    def _too_soon(self, group: str) -> Response | None:
        if not self.engine.timing.enforce_rate_limits:
            return None
        now_s = self.engine.clock.monotonic()
        last_s, self._last_call_s = self._last_call_s, now_s
        if last_s is not None and now_s - last_s < say.CALL_S:
            return say.too_often()
        if group == "create":
            self._launches_s = [at for at in self._launches_s if now_s - at < 60.0]
            if self._launches_s and now_s - self._launches_s[-1] < say.LAUNCH_S:
                return say.too_often(retry_after=max(1, round(say.LAUNCH_S - (now_s - self._launches_s[-1]))))
            if len(self._launches_s) >= LAUNCHES_A_MINUTE:
                return say.too_often(retry_after=max(1, round(60.0 - (now_s - self._launches_s[0]))))
            self._launches_s.append(now_s)
        return None

    async def _types(self, _request: Request, _body: dict[str, Any]) -> Response:
        if self.fault("search_empty") is not None:
            return JSONResponse({"data": {}})
        if self.fault("search_garbage") is not None:
            return say.garbage()
        return JSONResponse({"data": self.account.market.wire()})

    # ── launch ───────────────────────────────────────────────────────────────────────────────────

    async def _launch(self, _request: Request, body: dict[str, Any]) -> Response:
        call = self.engine.creates[-1]
        for name, refusal in say.CREATE_REFUSALS.items():
            if self.fault(name) is not None:
                return refusal()
        if self.fault("create_inactive") is not None:
            return say.inactive()
        if self.fault("create_lost_request") is not None:
            return LostReply()
        problem = self._problem(body)
        if problem is not None:
            return problem
        if (late := self.fault("create_lands_late")) is not None:
            call.outcome, call.ref = "pending", self._made(body, float(late.get("after_s", 200))).ref
            return LostReply()
        machine = self._made(body)
        call.outcome, call.ref = "committed", machine.ref
        return self._launched(machine, body)

    def _made(self, body: dict[str, Any], lands_in_s: float = 0.0) -> Machine:
        kind, place = self.account.market.kinds[body["instance_type_name"]], body["region_name"]
        self.account.market.take(kind, place)
        return self.account.launch(kind, place, body, self, lands_in_s)

    def _launched(self, machine: Machine, body: dict[str, Any]) -> Response:
        if self.fault("create_lost_reply") is not None:
            return LostReply()
        if self.fault("create_503_after") is not None:
            return say.unavailable()
        if self.fault("create_500_after") is not None:
            return say.error(500, "global/internal-error", "An internal server error occurred.")
        if self.fault("create_garbage") is not None:
            return say.garbage()
        ids = [machine.ref]
        if self.fault("create_two") is not None:
            ids.append(self._made(body).ref)
        return JSONResponse({"data": {"instance_ids": ids}})

    def _problem(self, body: dict[str, Any]) -> Response | None:
        kind = self.account.market.kinds.get(str(body.get("instance_type_name")))
        place, keys = body.get("region_name"), body.get("ssh_key_names")
        if kind is None or not isinstance(place, str) or not isinstance(keys, list) or len(keys) != 1:
            return say.invalid()
        if body.get("quantity", 1) != 1:
            return say.invalid("Requested too many instances.")
        hostname, tags = body.get("hostname"), body.get("tags") or []
        good_tags = all(
            _TAG_KEY.fullmatch(str(t.get("key"))) and len(str(t.get("key"))) <= 55 and len(str(t.get("value"))) <= 128
            for t in tags
        )
        too_long = len(str(body.get("name") or "")) > 64 or len(str(body.get("user_data") or "")) > USER_DATA_MAX
        if too_long or not good_tags or (hostname is not None and not _HOSTNAME.fullmatch(str(hostname))):
            return say.invalid()
        if keys[0] not in {key["name"] for key in self.account.ssh_keys}:
            return say.missing("SSH key")
        for name in body.get("file_system_names") or []:
            found = next((fs for fs in self.account.file_systems if fs["name"] == name), None)
            if found is None:
                return say.missing("Filesystem")
            if found["region"]["name"] != place:
                return say.CREATE_REFUSALS["create_wrong_region"]()
        return say.no_capacity() if kind.free.get(place, 0) < 1 else None

    # ── instances ────────────────────────────────────────────────────────────────────────────────

    async def _list(self, _request: Request, _body: dict[str, Any]) -> Response:
        if self.fault("list_garbage") is not None:
            return say.garbage()
        if self.fault("list_empty") is not None:
            return JSONResponse({"data": []})
        return JSONResponse({"data": [self.account.wire(m) for m in self.account.listed()]})

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self.account.shown(str(request.path_params["ref"]))
        if machine is None or self.fault("get_missing") is not None:
            return say.missing()
        return JSONResponse({"data": self.account.wire(machine)})

    async def _rename(self, request: Request, body: dict[str, Any]) -> Response:
        machine = self.account.existing(str(request.path_params["ref"]))
        if machine is None:
            return say.missing()
        if len(str(body.get("name") or "")) > 64:
            return say.invalid()
        machine.name = body.get("name")
        return JSONResponse({"data": self.account.wire(machine)})

    def _named(self, body: dict[str, Any]) -> list[Machine] | None:
        """The machines of `instance_ids`; None when one of them is unknown, which fails the whole call."""
        refs = body.get("instance_ids")
        found = [self.account.existing(str(ref)) for ref in refs] if isinstance(refs, list) else []
        known = [machine for machine in found if machine is not None]
        return known if known and len(known) == len(found) else None

    async def _terminate(self, _request: Request, body: dict[str, Any]) -> Response:
        machines = self._named(body)
        if machines is None:
            return say.missing()
        booting = [m for m in machines if m.refuses_while_booting and m.status(self.now) == "booting"]
        if booting:
            return say.error(409, "global/conflict", "The request conflicts with the current state of the resource.")
        if self.fault("destroy_unnamed") is not None:
            return JSONResponse({"data": {"terminated_instances": []}})
        if any(m.ended_at for m in machines) and self.fault("destroy_again_404") is not None:
            return say.missing()
        lingers = self.fault("terminated_lingers")
        done = self.fault("destroy_not_done") is None
        for machine in machines if done else []:
            self.account.terminate(machine)
            if lingers is not None:
                machine.lingers_s = float(lingers.get("after_s", 120))
        if self.fault("destroy_lost_reply") is not None:
            return LostReply()
        if self.fault("destroy_503_after") is not None:
            return say.unavailable()
        rows = [{**self.account.wire(machine), "status": "terminating"} for machine in machines]
        return JSONResponse({"data": {"terminated_instances": rows}})

    async def _restart(self, _request: Request, body: dict[str, Any]) -> Response:
        machines = self._named(body)
        if machines is None:
            return say.missing()
        if self.fault("restart_conflict") is not None or any(m.status(self.now) != "active" for m in machines):
            return say.error(409, "global/conflict", "The request conflicts with the current state of the resource.")
        for machine in machines:
            self.account.restart(machine)
        return JSONResponse({"data": {"restarted_instances": [self.account.wire(m) for m in machines]}})
