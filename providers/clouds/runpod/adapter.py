"""The adapter: which call is made for which verb of the contract."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.job import GpuConstraint
from providers.adapter_helpers import only, ruled, same
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.clouds.runpod import instances
from providers.clouds.runpod import offers as runpod_offers
from providers.clouds.runpod.errors import CLOUD, call_error, create_error, graphql_error
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
from providers.errors import AuthFailed, InvalidSpec, OutcomeUnknown, ProviderError, UnexpectedResponse
from providers.http import CloudHttp, Credential, Reply, fingerprint
from providers.rate_limits import LocalPacer, Pace, Pacer, Pacing

PAGE_LIMIT = 1000
#: More pages than any account has; reaching it means that the cursors lead nowhere.
PAGES_MAX = 200
POD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
KEY_PAGE = "https://console.runpod.io/user/settings"
BALANCE_QUERY = "query { myself { clientBalance currentSpendPerHr spendLimit } }"

#: The documented example of the limit is 60 requests a minute for the whole account; the `RateLimit` header of every
#: answer says when an account has used up its own.
RATE_LIMITS = {"v2": Pace(1.5, burst=20)}

CAPABILITIES = Capabilities(
    stop=True,
    spot=False,
    labels=True,
    balance=True,
    charges=True,
    logs=True,
    onstart_is_command=True,
    # A pod was seen RUNNING, with its price set, in the answer to the create: time counts from there.
    billing=BillingRule(quantum_s=1, minimum_s=0, starts=BillingStart.CREATE, storage_while_stopped=True),
    visibility_lag_s=30,
    boot_expected_s=120,
    name_max=191,
    rate_limits=RATE_LIMITS,
)


class RunPodConfig(BaseModel):
    """How to reach one RunPod account. `base_url` is the REST v2 base; GraphQL is looked for beside it.

    `container_disk_gb` holds the image and is wiped by a stop; the disk that people ask for is the volume beside it.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    api_key: Credential = SecretStr("")
    base_url: str = "https://api.runpod.io/v2"
    container_disk_gb: int = Field(
        default=instances.CONTAINER_DISK_GB, ge=10, le=1000, description="GB of a pod's container disk, for the image."
    )

    @property
    def root(self) -> str:
        """The base without its trailing `/v2`: where `/v2/…` and `/graphql` both live."""
        return self.base_url.rstrip("/").removesuffix("/v2")


class RunPodProvider:
    """One RunPod account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES

    def __init__(self, config: RunPodConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        key = config.api_key.get_secret_value()
        self._key = key
        self._clock = clock
        self.account = fingerprint(key)
        self._container_gb = config.container_disk_gb
        pacing = Pacing(CLOUD, self.account, RATE_LIMITS, pacer or LocalPacer(clock), _groups)
        self._http = CloudHttp(CLOUD, config.root, {"Authorization": f"Bearer {key}"}, clock, pacing=pacing)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, pages: int = 1
    ) -> tuple[Offer, ...]:
        """Both tiers in parallel. A page is one GPU count, because the catalogue knows stock per count only."""
        if spot is True:
            return ()
        first = max(1, constraint.count_min)
        counts = range(first, min(constraint.count_max, runpod_offers.COUNT_MAX) + 1)[: max(1, pages)]
        at = self._clock.now()
        asked = [runpod_offers.Page(t, c, disk_gb, at, self._container_gb) for c in counts for t in runpod_offers.TIERS]
        # Every page is awaited before the first error is raised, so that no call is left running behind it.
        answers = await asyncio.gather(*(self._page(page, constraint) for page in asked), return_exceptions=True)
        found: tuple[Offer, ...] = ()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found += answer
        return found

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """The one page that holds it: its tier at its count."""
        tier = offer.ticket.get("cloud", "")
        if offer.spot or tier not in runpod_offers.TIERS:
            return None
        asked = runpod_offers.Page(tier, offer.gpu_count, disk_gb, self._clock.now(), self._container_gb)
        return same(await self._page(asked, only(offer)), offer)

    async def _page(self, page: runpod_offers.Page, constraint: GpuConstraint) -> tuple[Offer, ...]:
        body = await self._get("/v2/catalog/gpus", runpod_offers.query(page.tier, page.count))
        return runpod_offers.offers(body, page, constraint)

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """The API has no filter by name, so this reads the whole account."""
        listing = await self.list()
        found = [item for item in listing.items if (item.name or "").endswith(name_suffix)]
        if not found:
            return NotSeen(CLOUD, listing.at)
        return tuple(sorted(found, key=lambda item: (item.created_at is None, item.created_at or listing.at)))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One pod; 404 is `NotSeen`."""
        at = self._clock.now()
        reply = await self._http.read("GET", _pod(ref))
        if reply.status == 404:
            return NotSeen(CLOUD, at)
        return instances.observed(self._checked(reply))

    async def list(self) -> Listing:
        """Every cursor page, each pod once. An answer without `pagination` is the last page, unless it is full."""
        at = self._clock.now()
        items: dict[str, ObservedInstance] = {}
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(PAGES_MAX):
            params = {"limit": str(PAGE_LIMIT), "includeClusterPods": "true"}
            body = await self._get("/v2/pods", params | ({"cursor": cursor} if cursor else {}))
            rows = body.get("pods") if isinstance(body, dict) else None
            if not isinstance(rows, list):
                raise UnexpectedResponse(CLOUD, "runpod's answer has no list of pods")
            for item in map(instances.observed, rows):
                items.setdefault(item.ref, item)
            cursor = _next_cursor(body.get("pagination"), len(rows))
            if cursor is None:
                return Listing(CLOUD, self.account, at, tuple(items.values()))
            if cursor in seen:
                break
            seen.add(cursor)
        raise UnexpectedResponse(CLOUD, "runpod's list of pods does not end")

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """The order is checked; then the create's turn."""
        instances.create_body(spec, self._container_gb)
        await self._http.turn("POST", "/v2/pods")
        return replace(spec, ready={})

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One `POST /v2/pods`. Only a 201 with an id is a yes; `outcomes.CREATE_OUTCOMES` lists every no."""
        if spec.ready is None:
            spec = await self.prepare(spec, grant)
        body = instances.create_body(spec, self._container_gb)
        reply = await self._http.send_once("POST", "/v2/pods", json=body)
        if not reply.ok:
            raise create_error(reply, [self._key, *body["env"].values()])
        try:
            return instances.observed(reply.body)
        except UnexpectedResponse as error:
            raise OutcomeUnknown(
                CLOUD, f"runpod answered the create with {reply.status} but without a readable pod"
            ) from error

    async def stop(self, ref: str) -> None:
        """Releases the GPU and keeps the volume, which costs twice as much from then on. A missing pod is stopped."""
        await self._act(ref, "stop", done=(InstanceStatus.STOPPED, InstanceStatus.ERROR, InstanceStatus.TERMINATED))

    async def start(self, ref: str) -> None:
        """Resumes on the same host, so `NoCapacity` means that this host's GPUs are taken."""
        await self._act(ref, "start", done=(InstanceStatus.RUNNING, InstanceStatus.BOOTING, InstanceStatus.PENDING))

    async def restart(self, ref: str) -> None:
        """Restarts the container in place; its container disk is wiped and its SSH port may change."""
        await self._act(ref, "restart", done=(InstanceStatus.BOOTING, InstanceStatus.PENDING))

    async def _act(self, ref: str, action: str, *, done: tuple[InstanceStatus, ...]) -> None:
        """One action. A 409 is success when the pod already is in one of the states `done`."""
        reply = await self._http.read("POST", f"{_pod(ref)}/action", json={"action": action})
        if reply.ok or (reply.status == 404 and InstanceStatus.TERMINATED in done):
            return
        if reply.status == 409:
            now = await self.get(ref)
            if isinstance(now, ObservedInstance) and now.status in done:
                return
        raise call_error(reply, [self._key])

    async def terminate(self, ref: str) -> bool:
        """`DELETE`: 204, or 404 when it is gone already. The volume is deleted with the pod."""
        reply = await self._http.read("DELETE", _pod(ref))
        if not reply.ok and reply.status != 404:
            raise call_error(reply, [self._key])
        return reply.ok

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """From GraphQL, the only place that tells it. `Unsupported` once that API answers 410."""
        reply = await self._http.read("POST", "/graphql", json={"query": BALANCE_QUERY})
        body = self._checked(reply)
        error = graphql_error(body)
        if error is not None:
            raise error
        data = body.get("data") if isinstance(body, dict) else None
        myself = data.get("myself") if isinstance(data, dict) else None
        credit = instances.decimal(myself.get("clientBalance")) if isinstance(myself, dict) else None
        if not isinstance(myself, dict) or credit is None:
            raise UnexpectedResponse(CLOUD, "runpod's balance answer has no clientBalance")
        spending = instances.decimal(myself.get("currentSpendPerHr"))
        return Balance(credit, instances.decimal(myself.get("spendLimit")), spending or Decimal(0))

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Hourly buckets. The cloud widens the window to whole buckets, so the first and last may reach outside."""
        params = {"startTime": instances.rfc3339(since), "endTime": instances.rfc3339(until), "bucketSize": "hour"}
        lines = instances.charges(await self._get("/v2/billing/pods", params))
        return ruled((line for line in lines if line.start < until and line.end > since), CAPABILITIES.billing)

    async def preflight(self) -> Preflight:
        """Reads one pod with the key. The balance is extra: a key may be good for pods and not for billing."""
        if not self._key:
            return Preflight(CLOUD, ok=False, missing=("RUNPOD_API_KEY",), where=KEY_PAGE, problem="No API key is set.")
        try:
            await self._get("/v2/pods", {"limit": "1"})
        except ProviderError as error:
            where = KEY_PAGE if isinstance(error, AuthFailed) else ""
            return Preflight(CLOUD, ok=False, where=where, problem=error.message, account=self.account, code=error.code)
        try:
            balance = await self.balance()
        except ProviderError as error:
            return Preflight(
                CLOUD, ok=True, where=KEY_PAGE, problem=f"Balance unknown: {error.message}", account=self.account
            )
        return Preflight(CLOUD, ok=True, where=KEY_PAGE, account=self.account, balance=balance)

    async def close(self) -> None:
        """Release connections."""
        await self._http.close()

    # ── transport ────────────────────────────────────────────────────────────────────────────────

    async def _get(self, path: str, params: dict[str, str]) -> Any:
        return self._checked(await self._http.read("GET", path, params=params))

    def _checked(self, reply: Reply) -> Any:
        if not reply.ok:
            raise call_error(reply, [self._key])
        return self._http.json(reply)


def _groups(_method: str, path: str) -> tuple[str, ...]:
    """GraphQL has limits of its own, which are not documented."""
    return ("v2",) if path.startswith("/v2/") else ()


def _pod(ref: str) -> str:
    """The path of one pod. `InvalidSpec` for what cannot be a pod's id and might lead to another path."""
    if not POD_ID.fullmatch(ref):
        raise InvalidSpec(CLOUD, "that is not an id of a runpod pod; one looks like 5xpma5eg46tqjq")
    return f"/v2/pods/{ref}"


def _next_cursor(pagination: Any, rows: int) -> str | None:
    """The cursor of the next page, or None on the last one. Contradictions raise: half a list proves nothing."""
    if pagination is None:
        if rows >= PAGE_LIMIT:
            raise UnexpectedResponse(CLOUD, "runpod sent a full page of pods without saying whether more follow")
        return None
    if not isinstance(pagination, dict):
        raise UnexpectedResponse(CLOUD, "runpod's pagination is not an object")
    cursor = pagination.get("nextCursor")
    if pagination.get("hasNextPage") is False or (cursor is None and "hasNextPage" not in pagination):
        return None
    if not isinstance(cursor, str) or not cursor:
        raise UnexpectedResponse(CLOUD, "runpod says that more pods follow but not where")
    return cursor
