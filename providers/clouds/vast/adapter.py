"""The adapter: which call is made for which verb of the contract."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.job import GpuConstraint
from providers.adapter_helpers import only, ruled, same
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.clouds.vast import instances, offers
from providers.clouds.vast.errors import CLOUD, call_error, create_error, fields, not_there, start_queued
from providers.contract import (
    Balance,
    Charge,
    InstanceSpec,
    InstanceStatus,
    Listing,
    NotSeen,
    ObservedInstance,
    Offer,
    Preflight,
)
from providers.errors import AuthFailed, NoCapacity, ProviderError, UnexpectedResponse
from providers.http import CloudHttp, Credential, Reply, fingerprint
from providers.rate_limits import LocalPacer, Pace, Pacer, Pacing

KEY_PAGE = "https://console.vast.ai/manage-keys/"
PAGE_LIMIT = 25
CHARGES_LIMIT = 100
#: More pages than any account has; reaching it means that the tokens lead nowhere.
PAGES_MAX = 400
#: Documented seconds between two calls of one endpoint, a little more because calls may arrive closer together than
#: they left; `search` is "10 a minute". Deeper pages leave most of these turns to the searches that people wait for.
RATE_LIMITS = {
    "create": Pace(4.7, wait_max_s=30.0),
    "get": Pace(2.1),
    "list": Pace(1.1),
    "state": Pace(1.1),
    "destroy": Pace(3.1),
    "charges": Pace(1.1),
    "search": Pace(12.0, burst=6, wait_max_s=15.0),
    "deeper": Pace(12.0, burst=2, wait_max_s=60.0, shares="search"),
}

CAPABILITIES = Capabilities(
    stop=True,
    spot=True,
    labels=True,
    balance=True,
    charges=True,
    logs=True,
    meter_stop_verb="destroy",
    # The GPU is billed per second while running, the disk per second from the creation on; nothing while the host is
    # out of contact.
    billing=BillingRule(
        quantum_s=1,
        minimum_s=0,
        starts=BillingStart.RUNNING,
        storage_while_stopped=True,
        storage_while_offline=False,
    ),
    visibility_lag_s=30,
    boot_expected_s=180,
    # 256 are taken at the create; what people and other tools show is far shorter.
    name_max=60,
    rate_limits=RATE_LIMITS,
)


class VastConfig(BaseModel):
    """How to reach one Vast.ai account. `verified_only` leaves out machines that Vast.ai has not verified."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    api_key: Credential = SecretStr("")
    base_url: str = "https://console.vast.ai"
    verified_only: bool = True


class VastProvider:
    """One Vast.ai account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES

    def __init__(self, config: VastConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        key = config.api_key.get_secret_value()
        self._has_key = bool(key)
        self._verified_only = config.verified_only
        self._clock = clock
        self.account = fingerprint(key)
        pacing = Pacing(CLOUD, self.account, RATE_LIMITS, pacer or LocalPacer(clock), _groups)
        self._http = CloudHttp(CLOUD, config.base_url, {"Authorization": f"Bearer {key}"}, clock, pacing=pacing)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, pages: int = 1
    ) -> tuple[Offer, ...]:
        """One filtered page per price type, cheapest first; deeper pages continue from the last price."""
        if constraint.names and not offers.gpu_names(constraint):
            return ()
        kinds = [kind for kind, wanted in ((offers.ON_DEMAND, False), (offers.BID, True)) if spot in {None, wanted}]
        # Every search is awaited before the first error is raised, so that no call is left running behind it.
        answers = await asyncio.gather(
            *(self._search(constraint, disk_gb, kind, pages) for kind in kinds), return_exceptions=True
        )
        found: tuple[Offer, ...] = ()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found += answer
        return found

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """One search for the bundles of its machine: filters by the id of an offer were seen to match nothing."""
        at, kind, machine = self._clock.now(), offers.BID if offer.spot else offers.ON_DEMAND, offer.machine_id
        if machine is None or not machine.isdigit():
            return same(await self.offers(only(offer), disk_gb=disk_gb, spot=offer.spot), offer)
        body = offers.query(
            only(offer), disk_gb=disk_gb, kind=kind, verified_only=self._verified_only, machine_id=int(machine)
        )
        rows = offers.rows(await self._read("POST", "/api/v0/bundles/", json=body))
        return same(tuple(offers.translate(rows, only(offer), disk_gb=disk_gb, kind=kind, at=at)), offer)

    async def _search(self, constraint: GpuConstraint, disk_gb: int, kind: str, pages: int) -> tuple[Offer, ...]:
        found: dict[str, Offer] = {}
        seen: set[Any] = set()
        above: float | None = None
        for page in range(max(1, pages)):
            at = self._clock.now()
            body = offers.query(
                constraint, disk_gb=disk_gb, kind=kind, verified_only=self._verified_only, above_usd_h=above
            )
            pace = "deeper" if page else "search"
            rows = offers.rows(await self._read("POST", "/api/v0/bundles/", json=body, pace=pace))
            new = [row for row in rows if row.get("id") not in seen]
            seen.update(row.get("id") for row in new)
            for offer in offers.translate(new, constraint, disk_gb=disk_gb, kind=kind, at=at):
                found.setdefault(offer.key, offer)
            last = rows[-1].get("dph_total") if rows else None
            if len(rows) < offers.ROWS_MAX or not new or not isinstance(last, int | float):
                break
            above = float(last)
        return tuple(found.values())

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """The API filters by whole labels only, so this reads the whole account."""
        listing = await self.list()
        found = [item for item in listing.items if (item.name or "").endswith(name_suffix)]
        if not found:
            return NotSeen(CLOUD, listing.at)
        return tuple(sorted(found, key=lambda item: (item.created_at or listing.at, int(item.ref))))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One instance; 200 with null is `NotSeen`."""
        at = self._clock.now()
        reply = await self._http.read("GET", _path(ref))
        if not_there(reply):
            return NotSeen(CLOUD, at)
        row = self._body(reply).get("instances", ...)
        if row is None:
            return NotSeen(CLOUD, at)
        return instances.observed(row, at)

    async def list(self) -> Listing:
        """Every page of the v1 listing, checked against the total that the service states."""
        at = self._clock.now()
        items: dict[str, ObservedInstance] = {}
        token: str | None = None
        seen: set[str] = set()
        for _ in range(PAGES_MAX):
            params = {"limit": str(PAGE_LIMIT), "order_by": '[{"col":"id","dir":"asc"}]'}
            body = await self._read("GET", "/api/v1/instances/", params=_after(params, token))
            rows = body.get("instances")
            if not isinstance(rows, list):
                raise UnexpectedResponse(CLOUD, "Vast.ai's answer has no list of instances")
            for item in (instances.observed(row, at) for row in rows):
                items.setdefault(item.ref, item)
            token = body.get("next_token")
            if token is None:
                total = body.get("total_instances")
                if isinstance(total, int) and total > len(items):
                    raise UnexpectedResponse(CLOUD, f"Vast.ai listed {len(items)} instances and says there are {total}")
                return Listing(CLOUD, self.account, at, tuple(items.values()))
            if not isinstance(token, str) or token in seen:
                break
            seen.add(token)
        raise UnexpectedResponse(CLOUD, "Vast.ai's list of instances does not end")

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """The order is checked; then the create's turn."""
        instances.create_body(spec)
        await self._http.turn("PUT", _ask(spec))
        return replace(spec, ready={})

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One `PUT`. The table of outcomes is in `providers.clouds.vast.errors`."""
        if spec.ready is None:
            spec = await self.prepare(spec, grant)
        reply = await self._http.send_once("PUT", _ask(spec), json=instances.create_body(spec))
        answer = fields(reply)
        contract = answer.get("new_contract")
        if not (reply.ok and answer.get("success") is True and offers.is_id(contract)):
            raise create_error(reply, self._clock.now())
        return ObservedInstance(
            cloud=CLOUD,
            ref=str(contract),
            name=spec.name,
            status=InstanceStatus.PENDING,
            gpu=spec.offer.gpu,
            gpu_count=spec.offer.gpu_count,
            region=spec.offer.region,
            machine_id=spec.offer.machine_id,
            spot=spec.offer.spot,
        )

    async def stop(self, ref: str) -> None:
        """GPU billing ends, the disk's goes on. An instance that is gone counts as stopped."""
        reply = await self._http.read("PUT", _path(ref), json={"state": "stopped"})
        if not not_there(reply):
            self._body(reply)

    async def start(self, ref: str) -> None:
        """A start that Vast.ai only queued is cancelled at once, or it would fire and bill later."""
        reply = await self._http.read("PUT", _path(ref), json={"state": "running"})
        if not_there(reply):
            raise NoCapacity(CLOUD, "the instance no longer exists, so it cannot be started")
        if start_queued(reply):
            await self.stop(ref)
            raise NoCapacity(CLOUD, "the GPU was taken by somebody else; the queued start was cancelled")
        self._body(reply)

    async def restart(self, ref: str) -> None:
        """Reboot of the container; the GPU stays rented."""
        self._body(await self._http.read("PUT", f"/api/v0/instances/reboot/{_number(ref)}/", json={}))

    async def terminate(self, ref: str) -> bool:
        """Destroy. A 404 that names the instance is success; a 404 about the key is not."""
        reply = await self._http.read("DELETE", _path(ref), json={})
        if not_there(reply):
            return False
        self._body(reply)
        return True

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """`credit` is what can be spent; it may be negative."""
        body = await self._read("GET", "/api/v0/users/current", params={"owner": "me"})
        credit = offers.number(body.get("credit"))
        if credit is None:
            raise UnexpectedResponse(CLOUD, "Vast.ai's answer has no credit")
        return Balance(credit_usd=credit)

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Every bill line that overlaps [since, until). Lines lag behind the use: read them again a day later."""
        filters = {
            "day": {"gte": int(since.timestamp()), "lte": int(until.timestamp())},
            "type": {"in": ["instance"]},
        }
        params = {"select_filters": json.dumps(filters), "format": "table", "limit": str(CHARGES_LIMIT)}
        lines: dict[str, Charge] = {}
        token: Any = None
        for _ in range(PAGES_MAX):
            body = await self._read(
                "GET", "/api/v0/charges/", params=params | ({"after_token": token} if token else {})
            )
            rows = body.get("results")
            if not isinstance(rows, list):
                raise UnexpectedResponse(CLOUD, "Vast.ai's answer has no list of charges")
            for line in (line for row in rows for line in instances.charge_lines(row)):
                if line.end > since and line.start < until:
                    lines[line.line_id] = line
            token = body.get("next_token")
            if token is None:
                return ruled(lines.values(), CAPABILITIES.billing)
        raise UnexpectedResponse(CLOUD, "Vast.ai's list of charges does not end")

    async def preflight(self) -> Preflight:
        """Reads the balance: it needs a valid key and costs nothing."""
        if not self._has_key:
            return Preflight(
                CLOUD, ok=False, missing=("VAST_API_KEY",), where=KEY_PAGE, problem="the API key is not set"
            )
        try:
            balance = await self.balance()
        except ProviderError as error:
            where = KEY_PAGE if isinstance(error, AuthFailed) else ""
            return Preflight(CLOUD, ok=False, where=where, problem=error.message, account=self.account, code=error.code)
        problem = "" if balance.credit_usd > 0 else "the account has no credit"
        code = "insufficient_funds" if problem else ""
        return Preflight(CLOUD, ok=not problem, problem=problem, account=self.account, balance=balance, code=code)

    async def close(self) -> None:
        """Release connections."""
        await self._http.close()

    # ── plumbing ─────────────────────────────────────────────────────────────────────────────────

    async def _read(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        return self._body(await self._http.read(method, path, **kwargs))

    def _body(self, reply: Reply) -> dict[str, Any]:
        """The body of a success; raises what any other answer means."""
        error = call_error(reply, self._clock.now())
        if error is not None:
            raise error
        body = self._http.json(reply)
        if not isinstance(body, dict):
            raise UnexpectedResponse(CLOUD, "Vast.ai's answer is not a JSON object")
        return body


def _groups(method: str, path: str) -> tuple[str, ...]:
    """The endpoint that a call counts against; some share a path."""
    if path.startswith("/api/v0/asks/"):
        return ("create",)
    if path.startswith("/api/v0/instances/"):
        return ({"GET": "get", "DELETE": "destroy"}.get(method, "state"),)
    ends = {"/api/v1/instances/": "list", "/api/v0/charges/": "charges", "/api/v0/bundles/": "search"}
    return (ends[path],) if path in ends else ()


def _after(params: dict[str, str], token: Any) -> dict[str, str]:
    return params | {"after_token": str(token)} if token else params


def _ask(spec: InstanceSpec) -> str:
    return f"/api/v0/asks/{int(spec.offer.ticket.get('ask', spec.offer.key))}/"


def _number(ref: str) -> int:
    """Ids are integers; anything else never came from Vast.ai and must not become part of a URL."""
    if not (ref.isascii() and ref.isdigit()):
        raise UnexpectedResponse(CLOUD, "an instance id of Vast.ai is a number")
    return int(ref)


def _path(ref: str) -> str:
    return f"/api/v0/instances/{_number(ref)}/"
