"""The adapter: which call is made for which verb of the contract."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.job import GpuConstraint
from ledger.kernel.network_guard import forbid_in_transaction
from providers.adapter_helpers import only, ruled, same
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.clouds.tensordock import billing, instances
from providers.clouds.tensordock import offers as tensordock_offers
from providers.clouds.tensordock.errors import CLOUD, call_error, create_error, made_id, meaning, not_there
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
from providers.errors import (
    AuthFailed,
    InvalidSpec,
    NoCapacity,
    NotSent,
    ProviderError,
    UnexpectedResponse,
    Unsupported,
)
from providers.http import CloudHttp, Credential, Reply, fingerprint
from providers.rate_limits import LocalPacer, Pace, Pacer, Pacing

KEY_PAGE = "https://dashboard.tensordock.com/developers"
REF = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
#: A create was seen to take more than a minute, a search four to five seconds.
CREATE_TIMEOUT_S = 150.0
READ_TIMEOUT_S = 30.0
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
    logs=False,
    restart=False,
    meter_stop_verb="destroy",
    # Everything is billed from the creation to the end, whatever state the machine is in.
    billing=BillingRule(
        quantum_s=1,
        minimum_s=0,
        starts=BillingStart.CREATE,
        storage_while_stopped=True,
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


class TensorDockConfig(BaseModel):
    """How to reach one TensorDock organization.

    `image` is the virtual machine's image, one with drivers. The key and token of the older API (v0) are optional: with
    both, balance and bill can be read.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    api_token: Credential = SecretStr("")
    base_url: str = "https://dashboard.tensordock.com/api/v2"
    image: str = "ubuntu2404_nvidia_570"
    v0_api_key: Credential = SecretStr("")
    v0_api_token: Credential = SecretStr("")
    v0_url: str = "https://marketplace.tensordock.com/api/v0"


class TensorDockProvider:
    """One TensorDock organization. The provider contract says what each method promises."""

    name = CLOUD

    def __init__(self, config: TensorDockConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        token = config.api_token.get_secret_value()
        self._has_token = bool(token)
        self._image = config.image
        self._clock = clock
        self._v0_form = {
            "api_key": config.v0_api_key.get_secret_value(),
            "api_token": config.v0_api_token.get_secret_value(),
        }
        paid = all(self._v0_form.values())
        self.capabilities = replace(CAPABILITIES, balance=paid, charges=paid)
        self.account = fingerprint(token)
        #: Machines as a read by id told them, while they run: a listing has no ports, and may have only names.
        self._read: dict[str, ObservedInstance] = {}
        pacing = Pacing(CLOUD, self.account, RATE_LIMITS, pacer or LocalPacer(clock), lambda *_: ("any",))
        headers = {"Authorization": f"Bearer {token}"}
        self._http = CloudHttp(CLOUD, config.base_url, headers, clock, READ_TIMEOUT_S, pacing)
        self._v0 = CloudHttp(CLOUD, config.v0_url, {}, clock, READ_TIMEOUT_S)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, pages: int = 1
    ) -> tuple[Offer, ...]:
        """One answer holds every location, so `pages` makes no difference."""
        if spot is True:
            return ()
        at = self._clock.now()
        return tensordock_offers.offers(await self._get("/locations"), constraint, disk_gb=disk_gb, at=at)

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """One answer holds every location."""
        return same(await self.offers(only(offer), disk_gb=disk_gb, spot=offer.spot), offer)

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """The API has no filter by name, so this reads the whole account."""
        listing = await self.list()
        found = [item for item in listing.items if (item.name or "").endswith(name_suffix)]
        if not found:
            return NotSeen(CLOUD, listing.at)
        return tuple(sorted(found, key=lambda item: item.created_at or listing.at))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One machine; 404, as a status or inside a 200, is `NotSeen`."""
        at = self._clock.now()
        reply = await self._call("GET", f"/instances/{_ref(ref)}")
        if not_there(reply):
            return NotSeen(CLOUD, at)
        seen = instances.observed(self._body(reply))
        return NotSeen(CLOUD, at) if seen.status is InstanceStatus.TERMINATED else seen

    async def list(self) -> Listing:
        """One answer without pages, and once for each running machine a read by id, which alone tells its port.

        A second read that fails takes nothing from the listing: the machine is there, its address is not known.
        """
        at = self._clock.now()
        items = [instances.observed(row) for row in instances.rows(await self._get("/instances"))]
        running = {item.ref for item in items if item.status is InstanceStatus.RUNNING}
        self._read = {ref: seen for ref, seen in self._read.items() if ref in running}
        full = [await self._in_full(item) if item.ref in running and item.ssh is None else item for item in items]
        return Listing(CLOUD, self.account, at, tuple(full))

    async def _in_full(self, item: ObservedInstance) -> ObservedInstance:
        seen = self._read.get(item.ref)
        if seen is None:
            try:
                found = await self.get(item.ref)
            except ProviderError:
                return item
            if isinstance(found, NotSeen):
                return item
            seen = found
            if seen.ssh is not None and seen.status is InstanceStatus.RUNNING:
                self._read[item.ref] = seen
        return replace(
            item,
            gpu=item.gpu or seen.gpu,
            gpu_count=item.gpu_count or seen.gpu_count,
            price_usd_h=item.price_usd_h if item.price_usd_h is not None else seen.price_usd_h,
            ssh=seen.ssh,
        )

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """Without a key to bring, the account's own is looked up; then the create's turn."""
        forbid_in_transaction("tensordock create")
        secret = None if spec.public_keys else await self._secret()
        ready = replace(spec, ready={"ssh_secret": secret.id} if secret else {})
        self._order(ready)
        await self._http.turn("POST", "/instances")
        return ready

    def _order(self, spec: InstanceSpec) -> dict[str, Any]:
        ref = (spec.ready or {}).get("ssh_secret")
        return instances.create_body(spec, self._image, instances.SshSecret(ref) if ref else None)

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One `POST`, which may take more than a minute. A 2xx is a yes only when it names an id and no error."""
        if spec.ready is None:
            spec = await self.prepare(spec, grant)
        body = self._order(spec)
        reply = await self._http.send_once("POST", "/instances", timeout_s=CREATE_TIMEOUT_S, json=body)
        ref = made_id(reply)
        status, _ = meaning(reply)
        failed = isinstance(reply.body, dict) and reply.body.get("error")
        if ref is None or failed or not 200 <= status < 300:
            raise create_error(reply)
        return ObservedInstance(
            cloud=CLOUD,
            ref=ref,
            name=spec.name,
            status=InstanceStatus.PENDING,
            gpu=spec.offer.gpu,
            gpu_count=spec.offer.gpu_count,
            region=spec.offer.region,
        )

    async def _secret(self) -> instances.SshSecret | None:
        """The account's first SSH key. Every failure here is a definite no: the create was not sent."""
        try:
            body = await self._get("/secrets")
        except ProviderError as error:
            if error.definite_no:
                raise
            message = f"the account's SSH keys could not be read ({error.message}), so no create was sent"
            raise NotSent(CLOUD, message) from error
        data = body.get("data") if isinstance(body, dict) else None
        rows = data.get("secrets") if isinstance(data, dict) else None
        keys = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        found = sorted(str(row["id"]) for row in keys if "ssh" in str(row.get("type", "")).lower() and row.get("id"))
        return instances.SshSecret(found[0]) if found else None

    async def stop(self, ref: str) -> None:
        """Saves nothing unless TensorDock gives the GPU back, which it may or may not do. Gone counts as stopped."""
        reply = await self._call("POST", f"/instances/{_ref(ref)}/stop")
        self._read.pop(ref, None)
        if not not_there(reply):
            await self._done(ref, reply, InstanceStatus.STOPPED, InstanceStatus.TERMINATED)

    async def start(self, ref: str) -> None:
        """`NoCapacity` when the GPU was given back and is taken."""
        reply = await self._call("POST", f"/instances/{_ref(ref)}/start")
        self._read.pop(ref, None)
        if not_there(reply):
            raise NoCapacity(CLOUD, "the machine no longer exists, so it cannot be started")
        await self._done(ref, reply, InstanceStatus.RUNNING, InstanceStatus.BOOTING)

    async def _done(self, ref: str, reply: Reply, *wanted: InstanceStatus) -> None:
        """Raise what the answer means, unless the machine is where it was to go: a repeated order is refused."""
        error = call_error(reply)
        if error is None:
            return
        if isinstance(error, UnexpectedResponse):
            now = await self.get(ref)
            if isinstance(now, ObservedInstance) and now.status in wanted:
                return
        raise error

    async def restart(self, ref: str) -> None:
        """There is none."""
        raise Unsupported(CLOUD, "TensorDock has no restart; reboot the machine over SSH")

    async def terminate(self, ref: str) -> bool:
        """`DELETE`; 404 is success."""
        reply = await self._call("DELETE", f"/instances/{_ref(ref)}")
        if not_there(reply):
            return False
        error = call_error(reply)
        if error is not None:
            raise error
        return True

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """From the older API, where its key is set."""
        if not self.capabilities.balance:
            raise Unsupported(CLOUD, "TensorDock tells the balance through its older API only, whose key is not set")
        return Balance(billing.credit(await billing.ask(self._v0, "/billing/balance", self._v0_form)))

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Monthly totals per machine from the older API: a line may reach outside the asked time."""
        if not self.capabilities.charges:
            raise Unsupported(CLOUD, "TensorDock tells the bill through its older API only, whose key is not set")
        lines: tuple[Charge, ...] = ()
        for period, start, end in billing.periods(since, until):
            body = await billing.ask(self._v0, "/billing/summary", {**self._v0_form, "period": period})
            lines += tuple(billing.charges(body, period, start, end))
        return ruled(lines, CAPABILITIES.billing)

    async def preflight(self) -> Preflight:
        """Reads the machines: it needs a valid token and costs nothing."""
        if not self._has_token:
            return Preflight(
                CLOUD, ok=False, missing=("TENSORDOCK_API_TOKEN",), where=KEY_PAGE, problem="the API token is not set"
            )
        try:
            await self.list()
            balance = await self.balance() if self.capabilities.balance else None
        except ProviderError as error:
            where = KEY_PAGE if isinstance(error, AuthFailed) else ""
            return Preflight(CLOUD, ok=False, where=where, problem=error.message, account=self.account, code=error.code)
        poor = balance is not None and balance.credit_usd < LEAST_USD
        problem = f"the balance is below the ${LEAST_USD} that a create needs" if poor else ""
        code = "insufficient_funds" if poor else ""
        return Preflight(CLOUD, ok=not poor, problem=problem, account=self.account, balance=balance, code=code)

    async def close(self) -> None:
        """Release connections."""
        await self._http.close()
        await self._v0.close()

    # ── plumbing ─────────────────────────────────────────────────────────────────────────────────

    async def _call(self, method: str, path: str) -> Reply:
        """A repeatable call; a refused token is tried once more, because refusals at random were seen."""
        reply = await self._http.read(method, path)
        if meaning(reply)[0] == 401:
            await self._clock.sleep(RECHECK_S)
            reply = await self._http.read(method, path)
        return reply

    async def _get(self, path: str) -> Any:
        return self._body(await self._call("GET", path))

    def _body(self, reply: Reply) -> Any:
        """The body of a success; raises what any other answer means."""
        error = call_error(reply)
        if error is not None:
            raise error
        return self._http.json(reply)


def _ref(ref: str) -> str:
    """`InvalidSpec` for what cannot be a machine's id and might lead to another path."""
    if not REF.fullmatch(ref):
        raise InvalidSpec(CLOUD, "that is not an id of a TensorDock machine; one is a UUID")
    return ref
