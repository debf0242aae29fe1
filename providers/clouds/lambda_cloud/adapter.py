"""The adapter: which call is made for which verb of the contract."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.job import GpuConstraint
from ledger.kernel.network_guard import forbid_in_transaction
from providers.adapter_helpers import only, ruled, same
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.clouds.lambda_cloud import billing, instances
from providers.clouds.lambda_cloud import offers as lambda_cloud_offers
from providers.clouds.lambda_cloud.errors import CLOUD, call_error, create_error, duplicate, fields, not_there
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
from providers.errors import AuthFailed, InvalidSpec, NotSent, ProviderError, UnexpectedResponse, Unsupported
from providers.http import CloudHttp, Credential, Reply, fingerprint
from providers.rate_limits import LocalPacer, Pace, Pacer, Pacing
from providers.resource_cleanup import Leftover

KEY_PAGE = "https://cloud.lambda.ai/api-keys"
_OURS = instances.KEY_PREFIX
REF = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
#: Documented are 1 s between two calls of any kind and 12 s between two launches. A launch may go out as much later
#: than its turn as it waits for a free second, so launches are that much further apart.
RATE_LIMITS = {
    "any": Pace(1.2),
    "free second": Pace(1.2, wait_max_s=3.6, shares="any"),
    "launch": Pace(16.0, wait_max_s=40.0),
}
LAUNCH = "/instance-operations/launch"
#: More pages than any account's log has; reaching it means that the tokens lead nowhere.
PAGES_MAX = 200
#: How far before the asked period the log is read for the launches of what ran in it.
LOOK_BACK = timedelta(days=35)

CAPABILITIES = Capabilities(
    stop=False,
    spot=False,
    labels=True,
    balance=False,
    charges=True,
    charges_derived=True,
    logs=False,
    meter_stop_verb="terminate",
    # Whether booting is billed is documented both ways, so time counts from the launch; the disk is included. Nobody
    # says that an unhealthy instance is free, so it is taken to be billed.
    billing=BillingRule(
        quantum_s=60,
        minimum_s=60,
        starts=BillingStart.CREATE,
        storage_while_stopped=False,
        gpu_while_broken=True,
    ),
    visibility_lag_s=30,
    boot_expected_s=300,
    # Machines with several GPUs take ten to fifteen minutes.
    boot_deadline_s=1800,
    name_max=instances.NAME_MAX,
    name_extra_chars="-",
    rate_limits=RATE_LIMITS,
)


class LambdaConfig(BaseModel):
    """How to reach one Lambda account (or workspace: a key sees its own only)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    api_key: Credential = SecretStr("")
    base_url: str = "https://cloud.lambda.ai/api/v1"


class LambdaProvider:
    """One Lambda account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES

    def __init__(self, config: LambdaConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        key = config.api_key.get_secret_value()
        self._has_key = bool(key)
        self._clock = clock
        self.account = fingerprint(key)
        pacing = Pacing(CLOUD, self.account, RATE_LIMITS, pacer or LocalPacer(clock), _groups)
        self._http = CloudHttp(CLOUD, config.base_url, {"Authorization": f"Bearer {key}"}, clock, pacing=pacing)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, pages: int = 1
    ) -> tuple[Offer, ...]:
        """One answer holds every type, so `pages` makes no difference."""
        if spot is True:
            return ()
        at = self._clock.now()
        return lambda_cloud_offers.offers(await self._get("/instance-types"), constraint, disk_gb=disk_gb, at=at)

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """One answer holds every type."""
        return same(await self.offers(only(offer), disk_gb=disk_gb, spot=offer.spot), offer)

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """The API has no filter by name, so this reads the whole account."""
        listing = await self.list()
        found = [item for item in listing.items if (item.name or "").endswith(name_suffix)]
        if not found:
            return NotSeen(CLOUD, listing.at)
        return tuple(sorted(found, key=lambda item: item.created_at or listing.at))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One instance; a 404 that says so is `NotSeen`, and so is an instance that is listed as terminated."""
        at = self._clock.now()
        reply = await self._http.read("GET", f"/instances/{_ref(ref)}")
        if not_there(reply):
            return NotSeen(CLOUD, at)
        seen = instances.observed(self._data(reply, dict))
        return NotSeen(CLOUD, at) if seen.status is InstanceStatus.TERMINATED else seen

    async def list(self) -> Listing:
        """One answer without pages."""
        at = self._clock.now()
        rows = self._data(await self._http.read("GET", "/instances"), list)
        return Listing(CLOUD, self.account, at, tuple(instances.observed(row) for row in rows))

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """The SSH key is registered, which may be repeated; then the launch's turn.

        Whatever goes wrong here is a definite no: `RateLimited` when two others wait for a launch already.
        """
        forbid_in_transaction("lambda create")
        instances.launch_body(spec, self._clock.now())
        material = instances.key_material(spec.public_keys[0]) if spec.public_keys else None
        key = await self._key(material, instances.key_name(grant.label))
        await self._http.turn("POST", LAUNCH)
        return replace(spec, ready={"ssh_key_name": key})

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One launch with the registered key."""
        if spec.ready is None:
            spec = await self.prepare(spec, grant)
        body = instances.launch_body(spec, self._clock.now())
        body["ssh_key_names"] = [(spec.ready or {})["ssh_key_name"]]
        reply = await self._http.send_once("POST", LAUNCH, json=body)
        data = fields(reply).get("data")
        ids = data.get("instance_ids") if isinstance(data, dict) else None
        if not (reply.ok and isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], str) and ids[0]):
            raise create_error(reply)
        return ObservedInstance(
            cloud=CLOUD,
            ref=ids[0],
            name=spec.name,
            status=InstanceStatus.PENDING,
            gpu=spec.offer.gpu,
            gpu_count=spec.offer.gpu_count,
            region=spec.offer.region,
        )

    async def _key(self, material: str | None, wanted: str) -> str:
        """The name of the registered key; registered as `wanted` when it is not. Every failure is a definite no.

        It is looked up at each launch: a launch that names a key which somebody deleted would be wasted. Without a key
        to bring, the account's own first one is used, as the web console would.
        """
        try:
            return await (self._any() if material is None else self._registered(material, wanted))
        except ProviderError as error:
            if error.definite_no:
                raise
            message = f"the SSH key could not be registered ({error.message}), so no launch was sent"
            raise NotSent(CLOUD, message) from error

    async def _any(self) -> str:
        # One that was registered for another launch opens that person's machine, and goes with it.
        names = sorted(name for row in await self._listed_keys() if not (name := str(row["name"])).startswith(_OURS))
        if not names:
            raise InvalidSpec(CLOUD, "Lambda needs an SSH key: give one, or register one in the account")
        return names[0]

    async def _registered(self, material: str, wanted: str) -> str:
        name = await self._known(material, wanted)
        if name is None:
            reply = await self._http.read("POST", "/ssh-keys", json={"name": wanted, "public_key": material})
            if not duplicate(reply):
                self._data(reply, dict)
                return wanted
            # Another replica was faster, or the call was repeated after a lost reply.
            name = await self._known(material, wanted, borrow=True)
        if name is None:
            raise UnexpectedResponse(CLOUD, "Lambda says that the SSH key exists and does not list it")
        return name

    async def _known(self, material: str, wanted: str, *, borrow: bool = False) -> str | None:
        """The key's own name, or one that a person gave it. `borrow` takes one of another launch too.

        Such a one is removed with its own instance, so it is named only when the account takes no key twice.
        """
        rows = await self._listed_keys()
        names = [str(r["name"]) for r in rows if " ".join(str(r.get("public_key") or "").split()[:2]) == material]
        if wanted in names:
            return wanted
        if any(row["name"] == wanted for row in rows):
            raise InvalidSpec(CLOUD, f"the account has another SSH key under the name {wanted}; delete it there")
        return next((name for name in names if borrow or not name.startswith(_OURS)), None)

    async def _listed_keys(self) -> tuple[dict[str, Any], ...]:
        rows = self._data(await self._http.read("GET", "/ssh-keys"), list)
        if not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
            raise UnexpectedResponse(CLOUD, "Lambda sent an SSH key without a name")
        return tuple(rows)

    async def leftovers(self) -> tuple[Leftover, ...]:
        """The account's SSH keys; the API knows no owner of one but its name."""
        rows = await self._listed_keys()
        if not all(isinstance(row.get("id"), str) for row in rows):
            raise UnexpectedResponse(CLOUD, "Lambda sent an SSH key without an id")
        return tuple(Leftover(CLOUD, row["id"], row["name"], "SSH key") for row in rows)

    async def remove(self, leftover: Leftover) -> None:
        """Deletes a key. Machines that were launched with it keep it."""
        reply = await self._http.read("DELETE", f"/ssh-keys/{_ref(leftover.ref)}")
        error = None if not_there(reply) else call_error(reply)
        if error is not None:
            raise error

    async def stop(self, ref: str) -> None:
        """There is none."""
        raise Unsupported(CLOUD, "Lambda cannot stop an instance; only terminate ends its cost")

    async def start(self, ref: str) -> None:
        """There is none."""
        raise Unsupported(CLOUD, "Lambda cannot stop an instance, so there is nothing to start")

    async def restart(self, ref: str) -> None:
        """Reboot of the machine."""
        body = {"instance_ids": [_ref(ref)]}
        self._data(await self._http.read("POST", "/instance-operations/restart", json=body), dict)

    async def terminate(self, ref: str) -> bool:
        """One id per call, because what a half-known list does is not documented. Gone already is success."""
        body = {"instance_ids": [_ref(ref)]}
        reply = await self._http.read("POST", "/instance-operations/terminate", json=body)
        if not_there(reply):
            return False
        ended = self._data(reply, dict).get("terminated_instances")
        if not isinstance(ended, list) or ref not in [row.get("id") for row in ended if isinstance(row, dict)]:
            raise UnexpectedResponse(CLOUD, "Lambda's answer to the terminate does not name the instance")
        return True

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """There is no such call."""
        raise Unsupported(CLOUD, "Lambda tells no balance; it sends invoices")

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Derived from the audit log and today's prices; see `providers.clouds.lambda_cloud.billing`."""
        events: list[Any] = []
        params = {"start": _iso(since - LOOK_BACK), "end": _iso(until)}
        token: str | None = None
        seen: set[str] = set()
        for _ in range(PAGES_MAX):
            body = await self._get("/audit-events", params | ({"page_token": token} if token else {}))
            page, token = body.get("data"), body.get("page_token")
            if not isinstance(page, list):
                raise UnexpectedResponse(CLOUD, "Lambda's answer has no list of audit events")
            events += page
            if token is None:
                prices = await self._prices()
                lines = billing.charges(billing.spans(events), prices, since, min(until, self._clock.now()))
                return ruled(lines, CAPABILITIES.billing)
            if not isinstance(token, str) or token in seen:
                break
            seen.add(token)
        raise UnexpectedResponse(CLOUD, "Lambda's audit log does not end")

    async def _prices(self) -> dict[str, Decimal]:
        data = (await self._get("/instance-types")).get("data")
        kinds = [row.get("instance_type") for row in data.values() if isinstance(row, dict)] if data else []
        priced = [
            (str(kind.get("name")), lambda_cloud_offers.price_usd_h(kind)) for kind in kinds if isinstance(kind, dict)
        ]
        return {name: price for name, price in priced if price is not None}

    async def preflight(self) -> Preflight:
        """Reads the account's instances: it needs a valid key of an active account and costs nothing."""
        if not self._has_key:
            return Preflight(
                CLOUD, ok=False, missing=("LAMBDA_API_KEY",), where=KEY_PAGE, problem="the API key is not set"
            )
        try:
            await self.list()
        except ProviderError as error:
            where = KEY_PAGE if isinstance(error, AuthFailed) else ""
            return Preflight(CLOUD, ok=False, where=where, problem=error.message, account=self.account, code=error.code)
        return Preflight(CLOUD, ok=True, account=self.account)

    async def close(self) -> None:
        """Release connections."""
        await self._http.close()

    # ── plumbing ─────────────────────────────────────────────────────────────────────────────────

    async def _get(self, path: str, params: dict[str, str] | None = None) -> dict[str, Any]:
        reply = await self._http.read("GET", path, params=params)
        error = call_error(reply)
        if error is not None:
            raise error
        body = self._http.json(reply)
        if not isinstance(body, dict):
            raise UnexpectedResponse(CLOUD, "Lambda's answer is not a JSON object")
        return body

    def _data(self, reply: Reply, kind: type) -> Any:
        """`data` of a success, which has to be of this type; raises what any other answer means."""
        error = call_error(reply)
        if error is not None:
            raise error
        body = self._http.json(reply)
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, kind):
            raise UnexpectedResponse(CLOUD, "Lambda's answer has no data of the documented shape")
        return data


def _ref(ref: str) -> str:
    """`InvalidSpec` for what cannot be an instance's id and might lead to another path."""
    if not REF.fullmatch(ref):
        raise InvalidSpec(CLOUD, "that is not an id of a Lambda instance; one is 32 hexadecimal digits")
    return ref


def _groups(_method: str, path: str) -> tuple[str, ...]:
    """A launch waits for its own turn first, so that the calls of others go on meanwhile."""
    return ("launch", "free second") if path.endswith("/launch") else ("any",)


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
