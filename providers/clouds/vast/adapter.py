"""Vast.ai's adapter: the API calls behind each method of the contract."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from providers.adapter import CloudAdapter, CloudConfig
from providers.adapter_helpers import joined, listed, number, only, pending, ruled, same
from providers.capabilities import BillGranularity, BillingRule, BillingStart, Capabilities, PortAccess, PriceSource
from providers.clouds.vast import billing, instances, offers
from providers.clouds.vast.errors import CLOUD, call_error, create_error, not_there, start_queued
from providers.clouds.vast.offers import SearchPage
from providers.completeness import COMPLETE, AnswerPart, Completeness, Rest
from providers.contract import Balance, Charge, Copy, InstanceSpec, Listing, NotSeen, ObservedInstance, Offer, Preflight
from providers.errors import InsufficientFunds, NoCapacity, ProviderError, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply
from providers.rate_limits import Pace, Pacer

PAGE_LIMIT = 25
CHARGES_LIMIT = 100
#: Documented seconds between two calls of one endpoint, a little more because calls may arrive closer together than
#: they left; `search` is "10 a minute", of which people get most: the rest of a search leaves one turn of six to other
#: searches, and the copy of the market (`spare`) four.
RATE_LIMITS = {
    "create": Pace(4.7, wait_max_s=30.0),
    "get": Pace(2.1),
    "list": Pace(1.1),
    "state": Pace(1.1),
    "destroy": Pace(3.1),
    "charges": Pace(1.1),
    "search": Pace(12.0, burst=6, wait_max_s=15.0),
    "rest": Pace(12.0, burst=5, wait_max_s=60.0, shares="search"),
    "spare": Pace(12.0, burst=2, wait_max_s=0.0, shares="search"),
}

CAPABILITIES = Capabilities(
    stop=True,
    spot=True,
    labels=True,
    balance=True,
    charges=True,
    bill_granularity=BillGranularity.DAY,
    logs=True,
    ports=PortAccess.PUBLIC,
    single_node="its machines reach each other only at the few ports that each host forwards",
    ends_itself=True,
    meter_stop_verb="destroy",
    pay_page="https://cloud.vast.ai/billing/",
    # The GPU is billed per second while running, the disk per second from the creation on; nothing while the host is
    # out of contact.
    billing=BillingRule(
        starts=BillingStart.RUNNING,
        storage_while_offline=False,
    ),
    visibility_lag_s=30,
    boot_expected_s=180,
    # 256 are taken at the create; what people and other tools show is far shorter.
    name_max=60,
    market_in_one=False,
    rate_limits=RATE_LIMITS,
)


class VastConfig(CloudConfig):
    """How to reach one Vast.ai account. `verified_only` leaves out machines that Vast.ai has not verified."""

    base_url: str = "https://console.vast.ai"
    verified_only: bool = True


class VastProvider(CloudAdapter):
    """One Vast.ai account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES
    KEY_PAGE = "https://console.vast.ai/manage-keys/"
    KEY_VARIABLE = "VAST_API_KEY"
    WITHOUT_KEY = PriceSource.PUBLIC

    def __init__(self, config: VastConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        super().__init__(config, clock, pacer)
        self._verified_only = config.verified_only

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        """The error for an answer, by its status, error code and words."""
        return call_error(reply, self._clock.now())

    def _groups(self, method: str, path: str) -> tuple[str, ...]:
        """The endpoint that a call counts against; some share a path."""
        if path.startswith("/api/v0/asks/"):
            return ("create",)
        if path.startswith("/api/v0/instances/"):
            return ({"GET": "get", "DELETE": "destroy"}.get(method, "state"),)
        ends = {"/api/v1/instances/": "list", "/api/v0/charges/": "charges", "/api/v0/bundles/": "search"}
        return (ends[path],) if path in ends else ()

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """One filtered page per price type, cheapest first; the rest continues from the last price of each."""
        if constraint.names and not offers.gpu_names(constraint):
            return AnswerPart()
        kinds = [kind for kind, wanted in ((offers.ON_DEMAND, False), (offers.BID, True)) if spot in {None, wanted}]
        above = {kind: None if rest is None else float(rest[kind]) for kind in kinds if rest is None or kind in rest}
        pace = "spare" if spare else "search" if rest is None else "rest"
        pages = await joined(self._page(constraint, disk_gb, kind, last, pace) for kind, last in above.items())
        found = tuple(offer for page in pages for offer in page.offers)
        last_usd_h = {page.kind: page.last_usd_h for page in pages if page.last_usd_h}
        lacks = any(page.is_stuck for page in pages) or offers.LACKS in (rest or {})
        if last_usd_h:
            following = last_usd_h | ({offers.LACKS: ""} if lacks else {})
            return AnswerPart(self._marked(found), Completeness.partial(offers.MORE_PAGES), following)
        complete = Completeness.partial(offers.MORE_AT_ONE_PRICE) if lacks else COMPLETE
        return AnswerPart(self._marked(found), complete)

    def copied_rest(
        self, copy: Copy, first: AnswerPart[Offer], constraint: GpuConstraint, disk_gb: int
    ) -> tuple[Offer, ...]:
        """What the copy has above the last price of the page that was read."""
        return offers.copied_rest(copy, first, constraint, disk_gb)

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """Search the bundles of the offer's machine: filters by the id of an offer were seen to match nothing."""
        at, kind, machine = self._clock.now(), offers.BID if offer.spot else offers.ON_DEMAND, offer.machine_id
        if machine is None or not machine.isdigit():
            return await super().requote(offer, disk_gb=disk_gb)
        body = offers.query(
            only(offer), disk_gb=disk_gb, kind=kind, verified_only=self._verified_only, machine_id=int(machine)
        )
        rows = offers.rows(await self._read("POST", "/api/v0/bundles/", json=body))
        return same(tuple(offers.translate(rows, only(offer), disk_gb=disk_gb, kind=kind, at=at)), offer)

    async def _page(
        self, constraint: GpuConstraint, disk_gb: int, kind: str, above: float | None, pace: str
    ) -> SearchPage:
        at = self._clock.now()
        body = offers.query(
            constraint, disk_gb=disk_gb, kind=kind, verified_only=self._verified_only, above_usd_h=above
        )
        rows = offers.rows(await self._read("POST", "/api/v0/bundles/", json=body, pace=pace, public=True))
        if not rows and above is None and constraint.cuda_min is not None:
            # Asked once more without the driver, so that people hear why nothing is left, and not only nothing.
            return await self._page(replace(constraint, cuda_min=None), disk_gb, kind, None, pace)
        found = tuple(offers.translate(rows, constraint, disk_gb=disk_gb, kind=kind, at=at))
        return offers.page(kind, found, rows, above)

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One instance; 200 with null is `NotSeen`."""
        at = self._clock.now()
        reply = await self._http.read("GET", _path(ref))
        if not_there(reply):
            return NotSeen(CLOUD, at)
        row = self._object(reply).get("instances", ...)
        if row is None:
            return NotSeen(CLOUD, at)
        return instances.observed(row, at)

    async def list(self) -> Listing:
        """Every page of the v1 listing, checked against the total that the service states."""
        at = self._clock.now()
        params = {"limit": str(PAGE_LIMIT), "order_by": '[{"col":"id","dir":"asc"}]'}
        items: dict[str, ObservedInstance] = {}
        total: Any = None
        async for body in self._bodies("/api/v1/instances/", params, "list of instances"):
            total = body.get("total_instances")
            for row in listed(CLOUD, body, "instances", "Vast.ai's answer has no list of instances"):
                item = instances.observed(row, at)
                items.setdefault(item.ref, item)
        if isinstance(total, int) and total > len(items):
            raise UnexpectedResponse(CLOUD, f"Vast.ai listed {len(items)} instances and says there are {total}")
        return Listing(CLOUD, self.account, at, tuple(items.values()))

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def _create_call(self, spec: InstanceSpec) -> tuple[str, str]:
        return "PUT", f"/api/v0/asks/{int(spec.offer.ticket.get('ask', spec.offer.key))}/"

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        instances.create_body(spec)
        return {}

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One `PUT`. The table of outcomes is in `providers.clouds.vast.errors`.

        A bid below the lowest accepted one is answered by 200 with success false and an id: that contract is stopped,
        and its disk is billed. It is ours, so it is returned like any other; what it does is read afterwards.
        """
        reply = await self._post(spec, instances.create_body(spec))
        contract = reply.fields.get("new_contract")
        if not (reply.ok and offers.is_id(contract)):
            raise create_error(reply, self._clock.now())
        return pending(str(contract), spec)

    async def stop(self, ref: str) -> None:
        """GPU billing ends, the disk's continues. An instance that is gone counts as stopped."""
        reply = await self._http.read("PUT", _path(ref), json={"state": "stopped"})
        if not not_there(reply):
            self._object(reply)

    async def start(self, ref: str) -> None:
        """A start that Vast.ai only queued is cancelled at once, or it would fire and bill later."""
        reply = await self._http.read("PUT", _path(ref), json={"state": "running"})
        if not_there(reply):
            raise NoCapacity(CLOUD, "the instance no longer exists, so it cannot be started")
        if start_queued(reply):
            await self.stop(ref)
            raise NoCapacity(CLOUD, "the GPU was taken by somebody else; the queued start was cancelled")
        self._object(reply)

    async def restart(self, ref: str) -> None:
        """Reboot the container; the GPU stays rented."""
        await self._read("PUT", f"/api/v0/instances/reboot/{_number(ref)}/", json={})

    async def terminate(self, ref: str) -> bool:
        """Destroy the instance. A 404 that names the instance is success; a 404 about the key is not."""
        reply = await self._http.read("DELETE", _path(ref), json={})
        if not_there(reply):
            return False
        self._object(reply)
        return True

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """`credit` is what can be spent; it may be negative."""
        body = await self._read("GET", "/api/v0/users/current", params={"owner": "me"})
        credit = number(body.get("credit"))
        if credit is None:
            raise UnexpectedResponse(CLOUD, "Vast.ai's answer has no credit")
        return Balance(credit_usd=credit)

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Return the bill of the whole UTC days that [since, until) touches. Read it again a day later: it lags."""
        begin, end = billing.midnight(since.astimezone(UTC)), billing.midnight(until.astimezone(UTC)) + billing.DAY
        filters = {
            "day": {"gte": int(begin.timestamp()), "lte": int(end.timestamp()) - 1},
            "type": {"in": ["instance"]},
        }
        params = {"select_filters": json.dumps(filters), "format": "table", "limit": str(CHARGES_LIMIT)}
        rows: list[Any] = []
        async for body in self._bodies("/api/v0/charges/", params, "list of charges"):
            rows += listed(CLOUD, body, "results", "Vast.ai's answer has no list of charges")
        lines = billing.charge_lines(rows)
        return ruled((line for line in lines if line.end > since and line.start < until), CAPABILITIES.billing)

    async def _usable(self) -> Preflight:
        """Read the balance."""
        balance = await self.balance()
        if balance.credit_usd > 0:
            return self._report(ok=True, balance=balance)
        problem = "the account has no credit"
        return self._report(ok=False, problem=problem, balance=balance, code=InsufficientFunds.code)

    # ── plumbing ─────────────────────────────────────────────────────────────────────────────────

    def _bodies(self, path: str, params: dict[str, str], what: str) -> AsyncIterator[dict[str, Any]]:

        async def page(token: str | None) -> tuple[dict[str, Any], Any]:
            body = await self._read("GET", path, params=params | ({"after_token": token} if token else {}))
            return body, body.get("next_token")

        return self._pages(page, what)


def _number(ref: str) -> int:
    """Ids are integers; anything else never came from Vast.ai and must not become part of a URL."""
    if not (ref.isascii() and ref.isdigit()):
        raise UnexpectedResponse(CLOUD, "an instance id of Vast.ai is a number")
    return int(ref)


def _path(ref: str) -> str:
    return f"/api/v0/instances/{_number(ref)}/"
