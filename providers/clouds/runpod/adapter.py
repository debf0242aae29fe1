"""RunPod's adapter: the API calls behind each method of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import Field

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from providers.adapter import CloudAdapter, CloudConfig
from providers.adapter_helpers import fits, joined, number, only, part, ruled, same
from providers.capabilities import BillGranularity, BillingRule, BillingStart, Capabilities, PortAccess, PriceSource
from providers.clouds.runpod import gpu_types, instances, offers, pages
from providers.clouds.runpod import spot as interruptible
from providers.clouds.runpod.errors import CLOUD, call_error, create_error, graphql_error
from providers.clouds.runpod.gpu_types import PriceField
from providers.clouds.runpod.offers import CatalogPage
from providers.completeness import COMPLETE, AnswerPart, Completeness, Rest
from providers.contract import (
    Balance,
    Charge,
    Copy,
    InstanceSpec,
    InstanceStatus,
    Listing,
    NotSeen,
    ObservedInstance,
    Offer,
    Preflight,
)
from providers.errors import InvalidSpec, OutcomeUnknown, ProviderError, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply
from providers.rate_limits import Pace, Pacer

BALANCE_QUERY = "query { myself { clientBalance currentSpendPerHr spendLimit } }"

#: The documented example of the limit is 60 requests a minute for the whole account; the `RateLimit` header of every
#: answer says when an account has used up its own.
RATE_LIMITS = {
    "v2": Pace(1.5, burst=20),
    #: The counts of a search behind its first one leave two turns to other searches; the copy of the market fifteen.
    "rest": Pace(1.5, burst=18, wait_max_s=30.0, shares="v2"),
    "spare": Pace(1.5, burst=5, wait_max_s=5.0, shares="v2"),
}

CAPABILITIES = Capabilities(
    stop=True,
    spot=False,
    labels=True,
    balance=True,
    pay_page="https://console.runpod.io/user/billing",
    charges=True,
    bill_granularity=BillGranularity.HOUR,
    single_node="",
    logs=True,
    ends_itself=True,
    onstart_is_command=True,
    ports=PortAccess.PUBLIC,
    # A pod was seen RUNNING, with its price set, in the answer to the create: time counts from there.
    billing=BillingRule(starts=BillingStart.CREATE),
    visibility_lag_s=30,
    boot_expected_s=120,
    name_max=191,
    market_in_one=False,
    cuda_in_offers=False,
    rate_limits=RATE_LIMITS,
)


class RunPodConfig(CloudConfig):
    """How to reach one RunPod account. `base_url` is the REST v2 base; GraphQL is looked for beside it.

    `container_disk_gb` holds the image and is wiped by a stop; the disk that people ask for is the volume beside it.
    A community host may have no public address, and the API has no field that asks for one.
    """

    base_url: str = "https://api.runpod.io/v2"
    container_disk_gb: int = Field(
        default=instances.CONTAINER_DISK_GB, ge=10, le=1000, description="GB of a pod's container disk, for the image."
    )

    tiers: Literal["secure", "community", "all"] = Field(
        default="secure",
        description="The hosts that are offered: secure, community or all. A community pod may have no public "
        "address; then SSH never answers, and it is ended at the boot deadline.",
    )

    spot: bool = Field(
        default=False,
        description="Also offers interruptible pods, by a GraphQL call that RunPod no longer documents. "
        "`gpu-shopper doctor` says whether the call still exists; where it does not, nothing of it is offered.",
    )

    @property
    def root(self) -> str:
        """The base without its trailing `/v2`: where `/v2/…` and `/graphql` both live."""
        return self.base_url.rstrip("/").removesuffix("/v2")


class RunPodProvider(CloudAdapter):
    """One RunPod account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES
    KEY_PAGE = "https://console.runpod.io/user/settings"
    KEY_VARIABLE = "RUNPOD_API_KEY"
    KEY_MISSING = "No API key is set."
    WITHOUT_KEY = PriceSource.PUBLIC
    CREATE = ("POST", "/v2/pods")
    REF_WRONG = "that is not an id of a runpod pod; one looks like 5xpma5eg46tqjq"

    def __init__(self, config: RunPodConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        # The probe for interruptible pods needs the key.
        setting = "" if config.spot else interruptible.SETTING
        self.capabilities = replace(CAPABILITIES, spot=config.spot and config.has_key, spot_setting=setting)
        super().__init__(config, clock, pacer)
        self._key = config.credential
        #: Whether interruptible pods can be rented; None while the setting is on and nobody asked RunPod yet.
        self._rents_spot: bool | None = None if config.spot else False
        self._container_gb = config.container_disk_gb
        self._tiers = tuple(tier for tier in offers.TIERS if config.tiers in ("all", tier.lower()))

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        """The error for an answer, by its status and, where that is not enough, its words."""
        return None if reply.ok else call_error(reply, [self._key])

    def _groups(self, method: str, path: str) -> tuple[str, ...]:
        """GraphQL has limits of its own, which are not documented."""
        return ("v2",) if path.startswith("/v2/") else ()

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """The tiers in use, in parallel, at the first GPU count; the rest has the other counts, all at once.

        The catalogue reports stock for one tier and one count in each answer. With `spare` the rest has one count.
        """
        counts = offers.counts(constraint, rest)
        asked = counts if self._missing or (rest is not None and not spare) else counts[:1]
        at, left = self._clock.now(), counts[len(asked) :]
        pages = [CatalogPage(t, c, disk_gb, at, self._container_gb) for c in asked for t in self._tiers]
        if self._missing:
            return AnswerPart(self._marked(await self._public(pages, constraint) if pages and spot is not True else ()))
        pace = "spare" if spare else None if rest is None else "rest"
        searches = [self._page(page, constraint, pace) for page in pages] if spot is not True else []
        if spot is not False and pages:
            beside = self._spot_beside if spot is None else self._spot_pages
            searches.append(beside(pages, constraint))
        answers = await joined(searches)
        found = tuple(offer for answer in answers for offer in answer)
        why = [answer.completeness.why for answer in answers if not answer.completeness.is_complete]
        lacks = next(iter(why), offers.lacks(rest))
        if left:
            return AnswerPart(found, Completeness.partial(offers.MORE_COUNTS), offers.rest_of(left, lacks))
        return AnswerPart(found, Completeness.partial(lacks) if lacks else COMPLETE)

    def copied_rest(
        self, copy: Copy, first: AnswerPart[Offer], constraint: GpuConstraint, disk_gb: int
    ) -> tuple[Offer, ...]:
        """What the copy has at the GPU counts that were not read yet."""
        counts = offers.counts(constraint, first.rest)
        at_them = (one for one in copy.offers if one.gpu_count in counts)
        found = (offers.with_disk(one, disk_gb, self._container_gb) for one in at_them)
        return tuple(one for one in found if fits(one, constraint))

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """The one page that holds the offer: its tier at its count."""
        tier = offer.ticket.get("cloud", "")
        if tier not in self._tiers:
            return None
        asked = CatalogPage(tier, offer.gpu_count, disk_gb, self._clock.now(), self._container_gb)
        if offer.spot:
            return same(await self._spot_pages([asked], replace(only(offer), cuda_min=offer.cuda_max)), offer)
        return same(await self._page(asked, only(offer)), offer)

    async def _public(self, pages: Sequence[CatalogPage], constraint: GpuConstraint) -> tuple[Offer, ...]:
        """The on-demand offers of these pages as RunPod shows them to anybody: by the older API, in one call."""
        asked = gpu_types.query(pages, constraint.cuda_min, PriceField.ON_DEMAND)
        body = await self._read("POST", "/graphql", json=asked, public=True)
        error = graphql_error(body)
        if error is not None:
            raise self._explained(error)
        return gpu_types.found(body, pages, constraint, PriceField.ON_DEMAND)

    async def _page(self, page: CatalogPage, constraint: GpuConstraint, pace: str | None = None) -> AnswerPart[Offer]:
        params = offers.query(page, constraint.cuda_min)
        body = await self._read("GET", "/v2/catalog/gpus", params=params, pace=pace)
        return AnswerPart(offers.offers(body, page, constraint))

    async def _spot_beside(self, pages: Iterable[CatalogPage], constraint: GpuConstraint) -> AnswerPart[Offer]:
        """As `_spot_pages`; a failure of the older API hides no on-demand offer, and is said."""
        try:
            return await self._spot_pages(pages, constraint)
        except ProviderError as error:
            return AnswerPart((), Completeness.partial(f"RunPod's spot offers were not read: {error.message}."))

    async def _spot_pages(self, pages: Iterable[CatalogPage], constraint: GpuConstraint) -> AnswerPart[Offer]:
        """The interruptible offers of these pages, in one call; none where RunPod rents no such pods."""
        if not await self._spot_is_rented():
            return AnswerPart()
        pages = tuple(pages)
        body = await self._read("POST", "/graphql", json=interruptible.query(pages, constraint))
        error = graphql_error(body)
        if error is not None:
            raise error
        return AnswerPart(interruptible.found(body, pages, constraint))

    async def _spot_is_rented(self) -> bool:
        """Ask RunPod once whether its call for interruptible pods still exists, where the setting is on."""
        if self._rents_spot is None:
            self._rents_spot = interruptible.is_known(
                await self._http.read("POST", "/graphql", json={"query": interruptible.PROBE})
            )
            if not self._rents_spot:
                self.capabilities = replace(self.capabilities, spot=False, spot_gone=f"{interruptible.WITHDRAWN}.")
        return self._rents_spot

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One pod; 404 is `NotSeen`."""
        at = self._clock.now()
        reply = await self._http.read("GET", self._pod(ref))
        if reply.status == 404:
            return NotSeen(CLOUD, at)
        return instances.observed(self._body(reply))

    async def list(self) -> Listing:
        """Every cursor page, each pod once. An answer without `pagination` is the last page, unless it is full."""
        at = self._clock.now()

        items: dict[str, ObservedInstance] = {}
        for item in map(instances.observed, await pages.pod_rows(self._read, self._pages)):
            items.setdefault(item.ref, item)
        return Listing(CLOUD, self.account, at, tuple(items.values()))

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def _create_call(self, spec: InstanceSpec) -> tuple[str, str]:
        return ("POST", "/graphql") if spec.offer.spot else self.CREATE

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        if spec.offer.spot and spec.volume is not None:
            raise InvalidSpec(CLOUD, "runpod mounts a network volume into on-demand pods only; leave spot out")
        if spec.offer.spot and not self.capabilities.spot:
            raise InvalidSpec(CLOUD, "runpod's interruptible pods are switched off here; ask for an on-demand offer")
        instances.create_body(spec, self._container_gb)
        return {}

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One `POST /v2/pods`. Only a 201 with an id is a yes; `outcomes.CREATE_OUTCOMES` lists every no."""
        if spec.offer.spot:
            asked = interruptible.rent_body(spec, self._container_gb)
            return interruptible.rented(await self._post(spec, asked), spec, [self._key, *spec.env.values()])
        body = instances.create_body(spec, self._container_gb)
        reply = await self._post(spec, body)
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
        reply = await self._http.read("POST", f"{self._pod(ref)}/action", json={"action": action})
        if reply.ok or (reply.status == 404 and InstanceStatus.TERMINATED in done):
            return
        if reply.status == 409:
            now = await self.get(ref)
            if isinstance(now, ObservedInstance) and now.status in done:
                return
        raise call_error(reply, [self._key])

    async def terminate(self, ref: str) -> bool:
        """`DELETE`: 204, or 404 when it is gone already. The volume is deleted with the pod."""
        reply = await self._http.read("DELETE", self._pod(ref))
        if not reply.ok and reply.status != 404:
            raise call_error(reply, [self._key])
        return reply.ok

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """The balance from GraphQL, the only place that has it. `Unsupported` once that API answers 410."""
        body = await self._read("POST", "/graphql", json={"query": BALANCE_QUERY})
        error = graphql_error(body)
        if error is not None:
            raise error
        myself = part(body, "data", "myself")
        credit = number(myself.get("clientBalance"))
        if credit is None:
            raise UnexpectedResponse(CLOUD, "runpod's balance answer has no clientBalance")
        spending = number(myself.get("currentSpendPerHr"))
        return Balance(credit, number(myself.get("spendLimit")), spending or Decimal(0))

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Hourly buckets. The cloud widens the window to whole buckets, so the first and last may reach outside."""
        params = {"startTime": instances.rfc3339(since), "endTime": instances.rfc3339(until), "bucketSize": "hour"}
        lines = instances.charges(await self._read("GET", "/v2/billing/pods", params=params))
        return ruled((line for line in lines if line.start < until and line.end > since), CAPABILITIES.billing)

    async def _usable(self) -> Preflight:
        """Read one pod. The balance is extra: a key may be good for pods and not for billing."""
        await self._read("GET", "/v2/pods", params={"limit": "1"})
        problem, balance = await self._spot_problem(), None
        try:
            balance = await self.balance()
        except ProviderError as error:
            problem = f"{problem} Balance unknown: {error.message}".strip()
        return self._report(ok=True, where=self.KEY_PAGE, problem=problem, balance=balance)

    async def _spot_problem(self) -> str:
        """Say why there are no interruptible pods although the setting is on; "" where nothing is wrong."""
        if not self.capabilities.spot:
            return self.capabilities.spot_gone
        try:
            return "" if await self._spot_is_rented() else self.capabilities.spot_gone
        except ProviderError as error:
            return f"Spot unknown: {error.message}."

    def _pod(self, ref: str) -> str:
        return f"/v2/pods/{self._checked(ref)}"
