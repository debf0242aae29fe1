"""Cirrus's API, served locally, with every fault that all clouds have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.engine import SandboxCloud, TrueInstance
from providers.sandbox.faults import COMMON_FAULTS, LostReply
from providers.sandbox.timeline import Meter, Timeline

REFUSALS = {"create_stale_offer": 409, "create_no_credit": 402, "create_bad_args": 422}
PRICES = {"north": Decimal("0.40"), "south": Decimal("0.44")}


@dataclass(slots=True)
class Machine:
    """One machine and its bill."""

    ref: str
    name: str
    offer: str
    region: str
    count: int
    usd_h: Decimal
    created_at: datetime
    listed_at: datetime
    reachable_s: float
    status: Timeline[str] = field(default_factory=lambda: Timeline("pending"))
    meter: Meter = field(default_factory=Meter)
    ended_at: datetime | None = None
    gone_at: datetime | None = None

    def exists(self, now: datetime) -> bool:
        return self.created_at <= now and (self.gone_at is None or now < self.gone_at)

    def reachable(self, now: datetime) -> bool:
        began = self.status.since(now)
        running = self.exists(now) and self.ended_at is None and self.status.at(now) == "running"
        return running and began is not None and now >= began + timedelta(seconds=self.reachable_s)


class CirrusSandbox(SandboxCloud):
    """One Cirrus account."""

    name = "cirrus"
    FAULTS: ClassVar[Mapping[str, str]] = {
        **COMMON_FAULTS,
        **{f"{group}_auth": "the key is refused" for group in ("search", "get", "list", "destroy")},
        "create_bad_args": "422",
    }
    CREATE_FAULTS: ClassVar[Mapping[str, str]] = {
        "create_lost_reply": "OutcomeUnknown",
        "create_503_after": "OutcomeUnknown",
        "create_lands_late": "OutcomeUnknown",
        "create_stale_offer": "NoCapacity",
        "create_no_credit": "InsufficientFunds",
        "create_bad_args": "InvalidSpec",
        "create_429": "RateLimited",
        "create_auth": "AuthFailed",
        "create_list_lag": "ok",
        "price_higher_than_quoted": "ok",
        "never_boots": "ok",
        "running_before_reachable": "ok",
    }
    DISTURBANCES: ClassVar[Mapping[str, str]] = {"vanish": "the machine is gone without anybody's asking"}
    API_KEY = "sandbox-cirrus-key-8f1e"
    VARIED = False
    PACED = False
    PAGED = False

    def environment(self, url: str) -> dict[str, str]:
        return {"CIRRUS_API_KEY": self.API_KEY, "CIRRUS_URL": url}

    def reset(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.prices = dict(PRICES)
        self.taken: set[str] = set()

    # ── from outside ─────────────────────────────────────────────────────────────────────────────

    def reachable(self) -> list[str]:
        return [machine.ref for machine in self.machines.values() if machine.reachable(self.now)]

    def instances(self) -> list[TrueInstance]:
        now = self.now
        return [
            TrueInstance(
                self.name, m.ref, m.name, m.status.at(now), "RTX4090", m.count, m.created_at, m.ended_at,
                m.meter.seconds("gpu", now), m.meter.usd("gpu", now), Decimal(0),
            )
            for m in self.machines.values()
            if m.created_at <= now
        ]  # fmt: skip

    def reprice(self, key: str, factor: Decimal) -> int:
        chosen = [place for place in self.prices if key in {"*", *(f"{place}-{count}" for count in self.COUNTS)}]
        for place in chosen:
            self.prices[place] *= factor
        return len(chosen)

    def withdraw(self, key: str) -> int:
        there = {offer for offer in self._keys() if key in {"*", offer}}
        self.taken |= there
        return len(there)

    def disturb(self, ref: str, what: str) -> None:
        if what not in self.DISTURBANCES:
            raise KeyError(what)
        self._end(self.machines[ref], 0.0)

    # ── the API ──────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[BaseRoute]:
        table: list[tuple[str, str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "/offers", "search", self._offers),
            ("POST", "/machines", "create", self._create),
            ("GET", "/machines", "list", self._list),
            ("GET", "/machines/{ref}", "get", self._get),
            ("DELETE", "/machines/{ref}", "destroy", self._delete),
        ]
        return [Route(path, self._guarded(group, answer), methods=[verb]) for verb, path, group, answer in table]

    def _guarded(
        self, group: str, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            if group == "create":
                sent = await request.json()
                self.engine.note_create(self.name, sent.get("name"), str(sent.get("offer"))).outcome = "refused"
            wrong = request.headers.get("authorization") != f"Bearer {self.API_KEY}"
            if wrong or self.fault(f"{group}_auth") is not None:
                return _said(401)
            if f"{group}_429" in self.FAULTS and (given := self.fault(f"{group}_429")) is not None:
                return _said(429, {"Retry-After": str(given.get("retry_after", 5))})
            if f"{group}_503" in self.FAULTS and self.fault(f"{group}_503") is not None:
                return _said(503)
            return await answer(request)

        return guarded

    def _keys(self) -> list[str]:
        there = [f"{place}-{count}" for place in self.prices for count in self.COUNTS]
        return [key for key in there if key not in self.taken]

    async def _offers(self, _request: Request) -> Response:
        rows = []
        for key in self._keys():
            place, _, count = key.partition("-")
            price = float(self.prices[place] * int(count))
            rows.append({"id": key, "gpu": "RTX4090", "count": int(count), "region": place, "usd_h": price})
        return JSONResponse({"offers": rows})

    async def _create(self, request: Request) -> Response:
        call, body = self.engine.creates[-1], await request.json()
        for name, status in REFUSALS.items():
            if self.fault(name) is not None:
                return _said(status)
        if body["offer"] not in self._keys():
            return _said(409)
        late = self.fault("create_lands_late")
        machine = self._made(body, float(late.get("after_s", 200)) if late is not None else 0.0)
        call.outcome, call.ref = ("committed" if late is None else "pending"), machine.ref
        if late is not None or self.fault("create_lost_reply") is not None:
            return LostReply()
        if self.fault("create_503_after") is not None:
            return _said(503)
        return JSONResponse(self._wire(machine), 201)

    def _made(self, body: dict[str, Any], lands_in_s: float) -> Machine:
        at, timing = self.now + timedelta(seconds=lands_in_s), self.engine.timing
        place, _, count = str(body["offer"]).partition("-")
        machine = Machine(
            ref=f"m-{len(self.machines) + 1}",
            name=str(body["name"]),
            offer=str(body["offer"]),
            region=place,
            count=int(count),
            usd_h=self.prices[place] * int(count) * self._factor(),
            created_at=at,
            listed_at=at + timedelta(seconds=self._lag("create_list_lag", timing.list_lag_s, 60)),
            reachable_s=self._lag("running_before_reachable", timing.reachable_s, 120),
        )
        if self.fault("never_boots") is None:
            machine.status.plan(at, (0.0, "booting"), (timing.boot_s, "running"))
        machine.meter.start("gpu", at, machine.usd_h)
        self.machines[machine.ref] = machine
        return machine

    def _factor(self) -> Decimal:
        higher = self.fault("price_higher_than_quoted")
        return Decimal(1) if higher is None else Decimal(str(higher.get("factor", "1.5")))

    def _lag(self, fault: str, usual_s: float, default_s: float) -> float:
        given = self.fault(fault)
        return usual_s if given is None else float(given.get("after_s", default_s))

    async def _list(self, _request: Request) -> Response:
        now = self.now
        rows = [self._wire(m) for m in self.machines.values() if m.exists(now) and now >= m.listed_at]
        return JSONResponse({"machines": rows})

    async def _get(self, request: Request) -> Response:
        machine = self.machines.get(request.path_params["ref"])
        return _said(404) if machine is None or not machine.exists(self.now) else JSONResponse(self._wire(machine))

    async def _delete(self, request: Request) -> Response:
        machine = self.machines.get(request.path_params["ref"])
        if machine is None or not machine.exists(self.now):
            return _said(404)
        if self.fault("destroy_not_done") is None:
            self._end(machine, self.engine.timing.destroy_s)
        return JSONResponse({"released": machine.ref})

    def _end(self, machine: Machine, forgotten_after_s: float) -> None:
        if machine.ended_at is None:
            machine.ended_at = self.now
            machine.gone_at = self.now + timedelta(seconds=forgotten_after_s)
            machine.meter.stop_all(self.now)

    def _wire(self, machine: Machine) -> dict[str, Any]:
        status = machine.status.at(self.now) if machine.ended_at is None else "offline"
        return {
            "id": machine.ref,
            "name": machine.name,
            "status": status,
            "gpu": "RTX4090",
            "count": machine.count,
            "usd_h": float(machine.usd_h),
            "region": machine.region,
            "port": self.engine.doors.reserve(self.door(machine.ref)) if status == "running" else None,
            "created_at": machine.created_at.isoformat(),
        }


def _said(status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": status}, status, headers)
