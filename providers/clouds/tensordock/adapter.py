"""TensorDock's adapter: the API calls behind each method of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from providers.adapter import CloudAdapter, CloudConfig
from providers.adapter_helpers import part, pending, ruled
from providers.capabilities import BillGranularity, BillingRule, BillingStart, Capabilities, PortAccess, PriceSource
from providers.clouds.tensordock import billing, hostnodes, instances, offers
from providers.clouds.tensordock.errors import CLOUD, call_error, create_error, made_id, meaning, not_there
from providers.completeness import AnswerPart, Rest
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
from providers.errors import InsufficientFunds, NoCapacity, ProviderError, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.http import CloudHttp, Credential, HttpReply
from providers.rate_limits import Pace, Pacer

#: A valid token was seen to be refused at random: one more look, this much later, before it is believed.
RECHECK_S = 2.0
#: A create is refused below this balance.
LEAST_USD = 1

#: 100 a minute for the whole organization.
RATE_LIMITS = {"any": Pace(0.75, burst=20)}

CAPABILITIES = Capabilities(
    stop=True,
    spot=False,
    labels=True,
    balance=False,
    charges=False,
    bill_granularity=BillGranularity.MONTH,
    single_node="",
    fuse=True,
    logs=False,
    restart=False,
    # Some locations ignore forwarded ports, and a machine with an address of its own is asked for none: then it is the
    # tunnel.
    ports=PortAccess.PUBLIC,
    meter_stop_verb="destroy",
    # A create was seen to take more than a minute, a search four to five seconds.
    create_timeout_s=150.0,
    # Everything is billed from the creation to the end, whatever state the machine is in.
    billing=BillingRule(
        starts=BillingStart.CREATE,
        gpu_while_stopped=True,
        gpu_while_broken=True,
    ),
    # None is documented. A create was seen to take 70 s, and a lost one may land that much later: ten times this
    # is looked for.
    visibility_lag_s=30,
    boot_expected_s=150,
    name_max=instances.NAME_MAX,
    name_extra_chars="-",
    rate_limits=RATE_LIMITS,
)


#: What the key and token of the older API are for.
_OLDER_API = "With both, balance and bills can be read; made at https://dashboard.tensordock.com/developers."


class TensorDockConfig(CloudConfig):
    """How to reach one TensorDock organization.

    `image` is the virtual machine's image, one with drivers. The key and token of the older API (v0) are optional: with
    both, balance and bill can be read.
    """

    base_url: str = "https://dashboard.tensordock.com/api/v2"
    image: str = Field(
        default="ubuntu2404_nvidia_570",
        description="Image of the virtual machines. It must have the GPU drivers; the plain `ubuntu2404` has none.",
    )
    v0_api_key: Credential = Field(default=SecretStr(""), description=f"Key of TensorDock's older API. {_OLDER_API}")
    v0_api_token: Credential = Field(default=SecretStr(""), description=f"Token of that API. {_OLDER_API}")
    v0_url: str = Field(
        default="https://marketplace.tensordock.com/api/v0",
        description="Address of TensorDock's older API. Change it only for a proxy, or the sandbox.",
    )


class TensorDockProvider(CloudAdapter):
    """One TensorDock organization. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES
    KEY_PAGE = "https://dashboard.tensordock.com/developers"
    KEY_VARIABLE = "TENSORDOCK_API_TOKEN"
    KEY_MISSING = "the API token is not set"
    WITHOUT_KEY = PriceSource.PUBLIC
    TIMEOUT_S = 30.0
    CREATE = ("POST", "/instances")
    REF_WRONG = "that is not an id of a TensorDock machine; one is a UUID"
    NOT_READY = "the account's SSH keys could not be read ({}), so no create was sent"
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "restart": "TensorDock has no restart; reboot the machine over SSH",
        "balance": "TensorDock tells the balance through its older API only, whose key is not set",
        "charges": "TensorDock tells the bill through its older API only, whose key is not set",
    }

    def __init__(self, config: TensorDockConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        super().__init__(config, clock, pacer)
        self._image = config.image
        self._v0_form = {
            "api_key": config.v0_api_key.get_secret_value(),
            "api_token": config.v0_api_token.get_secret_value(),
        }
        paid = config.has_key and all(self._v0_form.values())
        self.capabilities = replace(self.capabilities, balance=paid, charges=paid)
        #: Machines as a read by id told them, while they run: a listing has no ports, and may have only names.
        self._running: dict[str, ObservedInstance] = {}
        self._v0 = CloudHttp(CLOUD, config.v0_url, {}, clock, self.TIMEOUT_S, locked=self._locked)

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        """The error for an answer, by its status and words, also for an error inside a 200."""
        return call_error(reply)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """One answer holds every location."""
        if spot is True:
            return AnswerPart()
        at = self._clock.now()
        body = await (self._public() if self._missing else self._get("/locations"))
        return AnswerPart(self._marked(offers.offers(body, constraint, disk_gb=disk_gb, at=at)))

    async def _public(self) -> Any:
        """The locations as TensorDock shows them to anybody: the older API's hosts, or else the newer API's list."""
        try:
            return hostnodes.locations(self._body(await self._v0.read("GET", hostnodes.PATH, public=True)))
        except ProviderError as error:
            try:
                return await self._read("GET", "/locations", public=True)
            except ProviderError:
                raise error from None

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One machine; 404, as a status or inside a 200, is `NotSeen`."""
        at = self._clock.now()
        reply = await self._call("GET", f"/instances/{self._checked(ref)}")
        if not_there(reply):
            return NotSeen(CLOUD, at)
        seen = instances.observed(self._body(reply))
        return NotSeen(CLOUD, at) if seen.status is InstanceStatus.TERMINATED else seen

    async def list(self) -> Listing:
        """One answer without pages, and once for each running machine a read by id, which alone has its port.

        A second read that fails takes nothing from the listing: the machine is there, its address is not known.
        """
        at = self._clock.now()
        items = [instances.observed(row) for row in instances.rows(await self._get("/instances"))]
        running = {item.ref for item in items if item.status is InstanceStatus.RUNNING}
        self._running = {ref: seen for ref, seen in self._running.items() if ref in running}
        full = [await self._in_full(item) if item.ref in running and item.ssh is None else item for item in items]
        return Listing(CLOUD, self.account, at, tuple(full))

    async def _in_full(self, item: ObservedInstance) -> ObservedInstance:
        seen = self._running.get(item.ref)
        if seen is None:
            try:
                found = await self.get(item.ref)
            except ProviderError:
                return item
            if isinstance(found, NotSeen):
                return item
            seen = found
            if seen.ssh is not None and seen.status is InstanceStatus.RUNNING:
                self._running[item.ref] = seen
        return replace(
            item,
            gpu=item.gpu or seen.gpu,
            gpu_count=item.gpu_count or seen.gpu_count,
            price_usd_h=item.price_usd_h if item.price_usd_h is not None else seen.price_usd_h,
            ssh=seen.ssh,
            ports=seen.ports,
        )

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        """Without a key to bring, the account's own first one is looked up."""
        secret = "" if spec.public_keys else await self._secret()
        instances.create_body(spec, self._image, secret)
        return {"ssh_secret": secret}

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One `POST`, which may take more than a minute. A 2xx is a yes only when it names an id and no error."""
        body = instances.create_body(spec, self._image, (spec.ready or {}).get("ssh_secret", ""))
        reply = await self._post(spec, body)
        ref = made_id(reply)
        status, _ = meaning(reply)
        if ref is None or reply.fields.get("error") or not 200 <= status < 300:
            raise create_error(reply)
        return pending(ref, spec)

    async def _secret(self) -> str:
        """The id of the account's first SSH key; "" when it has none."""
        rows = part(await self._get("/secrets"), "data").get("secrets")
        keys = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        found = sorted(str(row["id"]) for row in keys if "ssh" in str(row.get("type", "")).lower() and row.get("id"))
        return found[0] if found else ""

    async def stop(self, ref: str) -> None:
        """Saves nothing unless TensorDock gives the GPU back, which it may or may not do. Gone counts as stopped."""
        reply = await self._call("POST", f"/instances/{self._checked(ref)}/stop")
        self._running.pop(ref, None)
        if not not_there(reply):
            await self._done(ref, reply, InstanceStatus.STOPPED, InstanceStatus.TERMINATED)

    async def start(self, ref: str) -> None:
        """`NoCapacity` when the GPU was given back and is taken."""
        reply = await self._call("POST", f"/instances/{self._checked(ref)}/start")
        self._running.pop(ref, None)
        if not_there(reply):
            raise NoCapacity(CLOUD, "the machine no longer exists, so it cannot be started")
        await self._done(ref, reply, InstanceStatus.RUNNING, InstanceStatus.BOOTING)

    async def _done(self, ref: str, reply: HttpReply, *wanted: InstanceStatus) -> None:
        """Raise what the answer means, unless the machine is where it was to go: a repeated order is refused."""
        error = call_error(reply)
        if error is None:
            return
        if isinstance(error, UnexpectedResponse):
            now = await self.get(ref)
            if isinstance(now, ObservedInstance) and now.status in wanted:
                return
        raise error

    async def terminate(self, ref: str) -> bool:
        """`DELETE`; 404 is success."""
        reply = await self._call("DELETE", f"/instances/{self._checked(ref)}")
        if not_there(reply):
            return False
        error = call_error(reply)
        if error is not None:
            raise error
        return True

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """The balance from the older API, where its key is set."""
        if not self.capabilities.balance:
            raise self._unsupported("balance")
        return Balance(billing.credit(await billing.read_v0(self._v0, "/billing/balance", self._v0_form)))

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Monthly totals per machine from the older API: a line may reach outside the asked time."""
        if not self.capabilities.charges:
            raise self._unsupported("charges")
        lines: tuple[Charge, ...] = ()
        for period, start, end in billing.periods(since, until):
            body = await billing.read_v0(self._v0, "/billing/summary", {**self._v0_form, "period": period})
            lines += tuple(billing.charges(body, period, start, end))
        return ruled(lines, CAPABILITIES.billing)

    async def _usable(self) -> Preflight:
        """Read the machines, and the balance where its key is set."""
        await self.list()
        balance = await self.balance() if self.capabilities.balance else None
        if balance is not None and balance.credit_usd < LEAST_USD:
            problem = f"the balance is below the ${LEAST_USD} that a create needs"
            return self._report(ok=False, problem=problem, balance=balance, code=InsufficientFunds.code)
        return self._report(ok=True, balance=balance)

    async def close(self) -> None:
        await super().close()
        await self._v0.close()

    # ── plumbing ─────────────────────────────────────────────────────────────────────────────────

    async def _call(self, method: str, path: str) -> HttpReply:
        """A repeatable call; a refused token is tried once more, because refusals at random were seen."""
        reply = await self._http.read(method, path)
        if meaning(reply)[0] == 401:
            await self._clock.sleep(RECHECK_S)
            reply = await self._http.read(method, path)
        return reply

    async def _get(self, path: str) -> Any:
        return self._body(await self._call("GET", path))
