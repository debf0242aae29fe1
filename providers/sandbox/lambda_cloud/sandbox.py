"""Lambda's HTTP API, served locally from its OpenAPI document 1.10.0 and from what people observed."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.cloud_names import volumes_of
from providers.sandbox.agents import exported
from providers.sandbox.api import ApiSandbox, Handler, RateWindow, Refused, shows
from providers.sandbox.engine import TrueInstance
from providers.sandbox.lambda_cloud import faults as say
from providers.sandbox.lambda_cloud.account import LambdaAccount, LambdaInstance
from providers.sandbox.lambda_cloud.market import REGIONS, images, region
from providers.sandbox.lambda_cloud.routes_volumes import FileSystems
from providers.sandbox.machines import SandboxMachine, keys_in
from providers.sandbox.nodes.boot import NodeBoot, virtual_machine

_TAG_KEY = re.compile(r"[a-z][a-z0-9:-]+")
_HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
#: Whom its images let in.
LOGIN_USER = "ubuntu"
USER_DATA_MAX = 1_000_000
AUDIT_PAGE = 100


class LambdaSandbox(ApiSandbox[LambdaAccount]):
    """One Lambda account. Paths and bodies are those of cloud.lambda.ai."""

    name = "lambda"
    FAULTS = say.FAULTS
    DISTURBANCES = say.DISTURBANCES
    API_KEY = "secret_sandbox-lambda_6f1ed002ab5595859014ebf0951522d9"
    STAPLE = "QuadroRTX6000"
    PAGED = False

    def environment(self, url: str) -> dict[str, str]:
        """The second one is ours: Lambda has no client of its own."""
        return {"LAMBDA_API_KEY": self.API_KEY, "LAMBDA_API_URL": f"{url}/api/v1"}

    def reset(self) -> None:
        self.account = LambdaAccount(self)
        self.file_systems = FileSystems(self)
        #: Documented: a second between two calls; for launches twelve, and five a minute.
        self._calls = RateWindow(1, 1.0)
        self._launches = (RateWindow(1, 12.0), RateWindow(5, 60.0))

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def inside(self, ref: str) -> SandboxMachine:
        machine = self.account.instances[ref]
        named = (key["public_key"] for key in self.account.ssh_keys if key["name"] == machine.key_name)
        brought = keys_in("\n".join((machine.user_data, *named)))
        return SandboxMachine(machine.gpu, machine.gpu_count, brought, LOGIN_USER)

    def boot(self, ref: str) -> NodeBoot | None:
        """Lambda boots Ubuntu with the named key and the launch's cloud-init."""
        machine, instance = self.machine(ref), self.account.instances[ref]
        named = tuple(str(key["public_key"]) for key in self.account.ssh_keys if key["name"] == instance.key_name)
        return None if machine is None else virtual_machine(machine, instance.user_data, named)

    def variables(self, ref: str) -> Mapping[str, str]:
        return exported(self.account.instances[ref].user_data)

    def instances(self) -> list[TrueInstance]:
        """Machines, and the file systems beside them."""
        now = self.now
        volumes = (one for one in self.account.file_systems.values() if one.created_at <= now)
        return [*super().instances(), *(one.truth(volumes_of(self.name), now) for one in volumes)]

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

    def happen(self, ref: str, what: str) -> None:
        if what in ("account_inactive", "account_active"):
            self.account.inactive = what == "account_inactive"
            return
        machine = self.account.instances[ref]
        if what == "vanish":
            self.account.terminate(machine)
            machine.gone_at = self.now
        elif what == "shutdown":
            machine.powered_off = True
        elif what == "preempted":
            machine.phases.plan(self.now, (0.0, "preempted"))
            machine.meter.stop_all(self.now)
        elif machine.status(self.now) != "preempted":
            machine.phases.plan(self.now, (0.0, "active" if what == "healthy" else "unhealthy"))

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        table: list[tuple[str, str, str, Handler]] = [
            ("GET", "/instance-types", "search", shows(lambda: {"data": self.account.market.wire()})),
            ("POST", "/instance-operations/launch", "create", self._launch),
            ("POST", "/instance-operations/terminate", "destroy", self._terminate),
            ("POST", "/instance-operations/restart", "restart", self._restart),
            ("GET", "/instances", "list", shows(lambda: {"data": self.account.rows()})),
            ("GET", "/instances/{ref}", "get", self._get),
            ("POST", "/instances/{ref}", "misc", self._rename),
            ("GET", "/ssh-keys", "keys", shows(lambda: {"data": self.account.ssh_keys})),
            ("POST", "/ssh-keys", "keys", self.add_key),
            ("DELETE", "/ssh-keys/{ref}", "keys", self.delete_key),
            ("GET", "/regions", "misc", shows(lambda: {"data": [region(name) for name in REGIONS]})),
            ("GET", "/images", "misc", shows(lambda: {"data": images()})),
            *self.file_systems.table(),
            ("GET", "/firewall-rules", "misc", shows(lambda: {"data": self.account.rules})),
            ("PUT", "/firewall-rules", "misc", self.put_rules),
            ("GET", "/audit-events", "audit", self.audit),
        ]

        async def unknown(_request: Request) -> Response:
            return say.NOT_FOUND

        return [
            *self.paths((method, f"/api/v1{path}", group, answer) for method, path, group, answer in table),
            Route("/{rest:path}", unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]

    def key_refusal(self, request: Request, group: str) -> Response | None:
        """The key comes as a token, or as the user of a password-less login."""
        basic = base64.b64encode(f"{self.API_KEY}:".encode()).decode()
        good = {f"Bearer {self.API_KEY}", f"Basic {basic}", f"Basic {self.API_KEY}"}
        return None if request.headers.get("authorization") in good else say.NOT_AUTHORISED

    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """An offer is a type in a region; that of a file system is its region."""
        if "region" in body:
            return body.get("name"), str(body["region"])
        return body.get("name"), f"{body.get('instance_type_name')}/{body.get('region_name')}"

    def malformed(self) -> Response:
        return say.INVALID

    def rate_windows(self, group: str) -> tuple[RateWindow, ...]:
        """Launches count twice."""
        return (self._calls, *(self._launches if group == "create" else ()))

    # ── launch ───────────────────────────────────────────────────────────────────────────────────

    async def _launch(self, _request: Request, body: dict[str, Any]) -> Response:
        problem = say.INACTIVE if self.account.inactive else self._problem(body)
        if problem is not None:
            return problem
        lands_in_s = self.lands_in_s()
        ids = [self._made(body, lands_in_s).ref]
        self.committed(ids[0], lands_in_s)
        if self.fault("create_two") is not None:
            ids.append(self._made(body).ref)
        return JSONResponse({"data": {"instance_ids": ids}})

    def _made(self, body: dict[str, Any], lands_in_s: float = 0.0) -> LambdaInstance:
        kind, place = self.account.market.kinds[body["instance_type_name"]], body["region_name"]
        kind.free[place] = max(kind.free.get(place, 0) - 1, 0)
        mounted = [ref for ref in self.file_systems.named(body) if ref is not None]
        return self.account.launch(kind, place, body, lands_in_s, mounted)

    def _problem(self, body: dict[str, Any]) -> Response | None:
        kind = self.account.market.kinds.get(str(body.get("instance_type_name")))
        place, keys = body.get("region_name"), body.get("ssh_key_names")
        if kind is None or not isinstance(place, str) or not isinstance(keys, list) or len(keys) != 1:
            return say.INVALID
        if body.get("quantity", 1) != 1:
            return say.error(400, "global/invalid-parameters", "Requested too many instances.")
        hostname, tags = body.get("hostname"), body.get("tags") or []
        good_tags = all(
            _TAG_KEY.fullmatch(str(t.get("key"))) and len(str(t.get("key"))) <= 55 and len(str(t.get("value"))) <= 128
            for t in tags
        )
        too_long = len(str(body.get("name") or "")) > 64 or len(str(body.get("user_data") or "")) > USER_DATA_MAX
        if too_long or not good_tags or (hostname is not None and not _HOSTNAME.fullmatch(str(hostname))):
            return say.INVALID
        if keys[0] not in {key["name"] for key in self.account.ssh_keys}:
            return say.missing("SSH key")
        return self.file_systems.problem(body) or (say.NO_CAPACITY if kind.free.get(place, 0) < 1 else None)

    # ── instances ────────────────────────────────────────────────────────────────────────────────

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self.account.shown(request.path_params["ref"])
        return say.missing() if machine is None else JSONResponse({"data": self.account.wire(machine)})

    async def _rename(self, request: Request, body: dict[str, Any]) -> Response:
        machine = self.account.existing(request.path_params["ref"])
        if machine is None:
            return say.missing()
        if len(str(body.get("name") or "")) > 64:
            return say.INVALID
        machine.name = body.get("name")
        return JSONResponse({"data": self.account.wire(machine)})

    def _named(self, body: dict[str, Any]) -> list[LambdaInstance]:
        """The machines of `instance_ids`. One that is unknown fails the whole call."""
        refs = body.get("instance_ids")
        found = [self.account.existing(str(ref)) for ref in refs] if isinstance(refs, list) else []
        known = [machine for machine in found if machine is not None]
        if not known or len(known) < len(found):
            raise Refused(say.missing())
        return known

    async def _terminate(self, _request: Request, body: dict[str, Any]) -> Response:
        machines = self._named(body)
        if any("terminate_refused_while_booting" in m.quirks and m.status(self.now) == "booting" for m in machines):
            return say.CONFLICT
        if any(m.ended_at for m in machines) and self.fault("destroy_again_404") is not None:
            return say.missing()
        lingers_s = float(self.fault_value("terminated_lingers", "after_s", 120) or 0)
        done = self.fault("destroy_not_done") is None
        for machine in machines if done else []:
            self.account.terminate(machine)
            machine.lingers_s = lingers_s or machine.lingers_s
        rows = [{**self.account.wire(machine), "status": "terminating"} for machine in machines]
        return JSONResponse({"data": {"terminated_instances": rows}})

    async def _restart(self, _request: Request, body: dict[str, Any]) -> Response:
        machines = self._named(body)
        if any(m.status(self.now) != "active" for m in machines):
            return say.CONFLICT
        for machine in machines:
            self.account.restart(machine)
        return JSONResponse({"data": {"restarted_instances": [self.account.wire(m) for m in machines]}})

    # ── SSH keys ─────────────────────────────────────────────────────────────────────────────────

    async def add_key(self, _request: Request, body: dict[str, Any]) -> Response:
        """Register a key. Without `public_key` one is generated, and its private half is shown this once."""
        account = self.account
        name, public_key = body.get("name"), body.get("public_key")
        if not isinstance(name, str) or not 1 <= len(name) <= 64 or len(str(public_key or "")) > 4096:
            return say.INVALID
        if self.fault("keys_added_meanwhile") is not None:
            account.add_key(name, str(public_key))
        once = self.fault("keys_taken_once") is not None
        if any(key["name"] == name or (once and key["public_key"] == public_key) for key in account.ssh_keys):
            return say.error(400, "global/duplicate", "An SSH key with this name already exists.")
        if public_key is None:
            made = account.add_key(name, f"ssh-ed25519 AAAA{account.new_id()} generated")
            return JSONResponse({"data": {**made, "private_key": "sandbox-private-key"}})
        return JSONResponse({"data": account.add_key(name, str(public_key))})

    async def delete_key(self, request: Request, _body: dict[str, Any]) -> Response:
        """Forget a key; instances keep what was injected."""
        keys = self.account.ssh_keys
        found = [key for key in keys if key["id"] == request.path_params["ref"]]
        for key in found:
            keys.remove(key)
        return JSONResponse({"data": {}}) if found else say.NOT_FOUND

    # ── firewall ────────────────────────────────────────────────────────────────

    async def put_rules(self, _request: Request, body: dict[str, Any]) -> Response:
        """Replaces the whole list."""
        rules = body.get("data")
        if not isinstance(rules, list) or not all(isinstance(rule, dict) and "protocol" in rule for rule in rules):
            return say.INVALID
        self.account.rules = rules
        return JSONResponse({"data": rules})

    # ── audit log ────────────────────────────────────────────────────────────────────────────────

    async def audit(self, request: Request, _body: dict[str, Any]) -> Response:
        """Events oldest first; `page_token` stands beside `data` and is null on the last page."""
        query = request.query_params
        try:
            start, end = (_time(query.get(name)) for name in ("start", "end"))
            skip = int(base64.urlsafe_b64decode(query.get("page_token", "").encode()) or b"0")
        except ValueError:
            return say.INVALID
        rows = int(self.fault_value("audit_small_pages", "rows", 1) or AUDIT_PAGE)
        kind = query.get("resource_type")
        events = [
            event
            for event in self.account.visible_events()
            if (start is None or datetime.fromisoformat(event["event_time"]) >= start)
            and (end is None or datetime.fromisoformat(event["event_time"]) <= end)
            and kind in {None, f"cloud.{event['resource_name']}"}
        ]
        more = len(events) > skip + rows
        token = base64.urlsafe_b64encode(str(skip + rows).encode()).decode() if more else None
        return JSONResponse({"data": events[skip : skip + rows], "page_token": token})


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time needs its zone")
    return at
