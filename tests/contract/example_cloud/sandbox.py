"""Cirrus's API, served locally, with every fault that all clouds have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from providers.sandbox.account import PhasedInstance, SandboxAccount
from providers.sandbox.api import ApiSandbox, Handler, Refused
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.faults import Fault, FaultTable, common, per_group
from providers.sandbox.machines import SandboxMachine, keys_in
from providers.sandbox.timeline import Timeline

PRICES = {"north": Decimal("0.40"), "south": Decimal("0.44")}
GROUPS = ("search", "create", "get", "list", "destroy")


def said(status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": status}, status, headers)


def too_often(given: Mapping[str, Any]) -> Response:
    return said(429, {"Retry-After": str(given.get("retry_after", 5))})


@dataclass(kw_only=True)
class Machine(PhasedInstance[str]):
    """One machine and its bill."""

    phases: Timeline[str] = field(default_factory=lambda: Timeline("pending"))
    region: str
    usd_h: Decimal
    keys: tuple[str, ...]

    def status(self, now: datetime) -> str:
        return self.phases.at(now) if self.ended_at is None else "offline"

    def answers(self, now: datetime) -> bool:
        return self.phases.at(now) == "running"


class Account(SandboxAccount[Machine]):
    """One Cirrus account, and the market that it sees."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud)
        self.prices = dict(PRICES)
        self.taken: set[str] = set()

    def make(self, body: Mapping[str, Any], lands_in_s: float) -> Machine:
        place, _, count = str(body["offer"]).partition("-")
        machine = Machine(
            ref=f"m-{len(self.instances) + 1}",
            name=str(body["name"]),
            region=place,
            keys=tuple(body["keys"]),
            gpu="RTX4090",
            gpu_count=int(count),
            usd_h=self.prices[place] * int(count) * self.price_factor(),
            **self.times(lands_in_s),
        )
        if self.cloud.fault("never_boots") is None:
            machine.phases.plan(machine.created_at, (0.0, "booting"), (self.engine.timing.boot_s, "running"))
        machine.meter.start("gpu", machine.created_at, machine.usd_h)
        return self.add(machine)


class CirrusSandbox(ApiSandbox[Account]):
    """One Cirrus account."""

    name = "cirrus"
    FAULTS = FaultTable(
        *per_group(GROUPS, "auth", "the key is refused", lambda _: said(401), "AuthFailed"),
        *per_group(GROUPS, "429", "called too often [retry_after]", too_often, "RateLimited"),
        *per_group(GROUPS, "503", "out of service", lambda _: said(503), "OutcomeUnknown"),
        common("create_503_after", spoils=lambda _: said(503)),
        common("create_stale_offer", refuses=lambda _: said(409)),
        common("create_no_credit", refuses=lambda _: said(402)),
        Fault("create_bad_args", "422", "InvalidSpec", lambda _: said(422)),
        Fault("create_get_lag", "the new machine is not found by id for a while [after_s=60]", "ok"),
    )
    DISTURBANCES: ClassVar[Mapping[str, str]] = {"vanish": "the machine is gone without anybody's asking"}
    API_KEY = "sandbox-cirrus-key-8f1e"
    VARIED = False
    PACED = False
    PAGED = False

    def environment(self, url: str) -> dict[str, str]:
        return {"CIRRUS_API_KEY": self.API_KEY, "CIRRUS_URL": url}

    def reset(self) -> None:
        self.account = Account(self)

    # ── from outside ─────────────────────────────────────────────────────────────────────────────

    def inside(self, ref: str) -> SandboxMachine:
        machine = self.account.instances[ref]
        return SandboxMachine(machine.gpu, machine.gpu_count, keys_in("\n".join(machine.keys)))

    def reprice(self, key: str, factor: Decimal) -> int:
        prices = self.account.prices
        chosen = [place for place in prices if key in {"*", *(f"{place}-{count}" for count in self.COUNTS)}]
        for place in chosen:
            prices[place] *= factor
        return len(chosen)

    def withdraw(self, key: str) -> int:
        there = {offer for offer in self._keys() if key in {"*", offer}}
        self.account.taken |= there
        return len(there)

    def happen(self, ref: str, what: str) -> None:
        self.account.instances[ref].end(self.now, 0.0)

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        table: list[tuple[str, str, str, Handler]] = [
            ("GET", "/offers", "search", self._offers),
            ("POST", "/machines", "create", self._create),
            ("GET", "/machines", "list", self._list),
            ("GET", "/machines/{ref}", "get", self._get),
            ("DELETE", "/machines/{ref}", "destroy", self._delete),
        ]
        return [*self.paths(table)]

    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        return body.get("name"), str(body.get("offer"))

    def malformed(self) -> Response:
        return said(422)

    def _keys(self) -> list[str]:
        there = [f"{place}-{count}" for place in self.account.prices for count in self.COUNTS]
        return [key for key in there if key not in self.account.taken]

    async def _offers(self, _request: Request, _body: dict[str, Any]) -> Response:
        rows = []
        for key in self._keys():
            place, _, count = key.partition("-")
            price = float(self.account.prices[place] * int(count))
            rows.append({"id": key, "gpu": "RTX4090", "count": int(count), "region": place, "usd_h": price})
        return JSONResponse({"offers": rows})

    async def _create(self, _request: Request, body: dict[str, Any]) -> Response:
        if body["offer"] not in self._keys():
            return said(409)
        lands_in_s = self.lands_in_s()
        machine = self.account.make(body, lands_in_s)
        self.committed(machine.ref, lands_in_s)
        return JSONResponse(self._wire(machine), 201)

    async def _list(self, _request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse({"machines": [self._wire(machine) for machine in self.account.listed()]})

    def _found(self, machine: Machine | None) -> Machine:
        if machine is None:
            raise Refused(said(404))
        return machine

    async def _get(self, request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(self._wire(self._found(self.account.shown(request.path_params["ref"]))))

    async def _delete(self, request: Request, _body: dict[str, Any]) -> Response:
        machine = self._found(self.account.existing(request.path_params["ref"]))
        if self.fault("destroy_not_done") is None:
            machine.end(self.now, self.engine.timing.destroy_s)
        return JSONResponse({"released": machine.ref})

    def _wire(self, machine: Machine) -> dict[str, Any]:
        status = machine.status(self.now)
        return {
            "id": machine.ref,
            "name": machine.name,
            "status": status,
            "gpu": machine.gpu,
            "count": machine.gpu_count,
            "usd_h": float(machine.usd_h),
            "region": machine.region,
            "port": self.account.reserve_port(machine) if status == "running" else None,
            "created_at": machine.created_at.isoformat(),
        }
