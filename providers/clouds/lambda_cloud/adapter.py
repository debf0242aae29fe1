"""Lambda's adapter: the API calls behind each method of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from ledger.kernel.grant import Grant
from providers.adapter import CloudAdapter, CloudConfig
from providers.adapter_helpers import listed, part, pending, ruled
from providers.capabilities import BillingRule, BillingStart, Capabilities, PriceSource
from providers.cloud_init import key_material
from providers.clouds.lambda_cloud import billing, instances, list_prices, offers
from providers.clouds.lambda_cloud.errors import CLOUD, call_error, create_error, duplicate, key_gone, not_there
from providers.completeness import AnswerPart, Rest
from providers.contract import Charge, InstanceSpec, InstanceStatus, Listing, NotSeen, ObservedInstance, Offer
from providers.errors import InvalidSpec, ProviderError, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply
from providers.leftovers import Leftover
from providers.rate_limits import Pace

_OURS = instances.KEY_PREFIX
#: Documented are 1 s between two calls of any kind and 12 s between two launches. A launch may go out as much later
#: than its turn as it waits for a free second, so launches are that much further apart.
RATE_LIMITS = {
    "any": Pace(1.2),
    "free second": Pace(1.2, wait_max_s=3.6, shares="any"),
    "launch": Pace(16.0, wait_max_s=40.0),
}
#: How far before the asked period the log is read for the launches of what ran in it.
LOOK_BACK = timedelta(days=35)

CAPABILITIES = Capabilities(
    stop=False,
    spot=False,
    labels=True,
    balance=False,
    charges=True,
    charges_derived=True,
    single_node="",
    fuse=True,
    logs=False,
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


class LambdaConfig(CloudConfig):
    """How to reach one Lambda account (or workspace: a key sees its own only)."""

    base_url: str = "https://cloud.lambda.ai/api/v1"


class LambdaProvider(CloudAdapter):
    """One Lambda account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES
    KEY_PAGE = "https://cloud.lambda.ai/api-keys"
    KEY_VARIABLE = "LAMBDA_API_KEY"
    WITHOUT_KEY = PriceSource.LIST_PRICE
    CREATE = ("POST", "/instance-operations/launch")
    REF_WRONG = "that is not an id of a Lambda instance; one is 32 hexadecimal digits"
    NOT_READY = "the SSH key could not be registered ({}), so no launch was sent"
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "stop": "Lambda cannot stop an instance; only terminate ends its cost",
        "start": "Lambda cannot stop an instance, so there is nothing to start",
        "balance": "Lambda tells no balance; it sends invoices",
    }

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        """The error for an answer, by its status and error code."""
        return call_error(reply)

    def _groups(self, _method: str, path: str) -> tuple[str, ...]:
        """A launch waits for its own turn first, so that the calls of others go on meanwhile."""
        return ("launch", "free second") if path.endswith("/launch") else ("any",)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """One answer holds every type."""
        if spot is True:
            return AnswerPart()
        at = self._clock.now()
        if self._missing:
            return AnswerPart(self._marked(list_prices.offers(constraint, at=at)))
        body = await self._read("GET", "/instance-types")
        return AnswerPart(offers.offers(body, constraint, disk_gb=disk_gb, at=at))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One instance; a 404 that says so is `NotSeen`, and so is an instance that is listed as terminated."""
        at = self._clock.now()
        reply = await self._http.read("GET", f"/instances/{self._checked(ref)}")
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

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        """Register the SSH key, which may be repeated, and give its name.

        It is looked up at each launch: a launch that names a key which somebody deleted would be wasted. Without a key
        to bring, the account's own first one is used, as the web console would.
        """
        instances.launch_body(spec, self._clock.now())
        if not spec.public_keys:
            return {"ssh_key_name": await self._any()}
        material = key_material(CLOUD, spec.public_keys[0])
        return {"ssh_key_name": await self._registered(material, instances.key_name(grant.label))}

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One launch with the registered key."""
        body = instances.launch_body(spec, self._clock.now())
        body["ssh_key_names"] = [(spec.ready or {})["ssh_key_name"]]
        reply = await self._post(spec, body)
        ids = part(reply.fields, "data").get("instance_ids")
        if not (reply.ok and isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], str) and ids[0]):
            raise create_error(reply)
        return pending(ids[0], spec)

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
        """Delete a key. Machines that were launched with it keep it."""
        reply = await self._http.read("DELETE", f"/ssh-keys/{self._checked(leftover.ref)}")
        error = None if key_gone(reply) else call_error(reply)
        if error is not None:
            raise error

    async def restart(self, ref: str) -> None:
        """Reboot the machine."""
        body = {"instance_ids": [self._checked(ref)]}
        self._data(await self._http.read("POST", "/instance-operations/restart", json=body), dict)

    async def terminate(self, ref: str) -> bool:
        """One id per call, because what a half-known list does is not documented. Gone already is success."""
        body = {"instance_ids": [self._checked(ref)]}
        reply = await self._http.read("POST", "/instance-operations/terminate", json=body)
        if not_there(reply):
            return False
        ended = self._data(reply, dict).get("terminated_instances")
        if not isinstance(ended, list) or ref not in [row.get("id") for row in ended if isinstance(row, dict)]:
            raise UnexpectedResponse(CLOUD, "Lambda's answer to the terminate does not name the instance")
        return True

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """The bill, derived from the audit log and today's prices; see `providers.clouds.lambda_cloud.billing`."""
        params = {"start": _iso(since - LOOK_BACK), "end": _iso(until)}

        async def page(token: str | None) -> tuple[Any, Any]:
            body = await self._read("GET", "/audit-events", params=params | ({"page_token": token} if token else {}))
            rows = listed(CLOUD, body, "data", "Lambda's answer has no list of audit events")
            return rows, body.get("page_token")

        events: list[Any] = []
        async for rows in self._pages(page, "audit log"):
            events += rows
        lines = billing.charges(billing.spans(events), await self._prices(), since, min(until, self._clock.now()))
        return ruled(lines, CAPABILITIES.billing)

    async def _prices(self) -> dict[str, Decimal]:
        data = (await self._read("GET", "/instance-types")).get("data")
        kinds = [row.get("instance_type") for row in data.values() if isinstance(row, dict)] if data else []
        priced = [(str(kind.get("name")), offers.price_usd_h(kind)) for kind in kinds if isinstance(kind, dict)]
        return {name: price for name, price in priced if price is not None}

    def _data(self, reply: HttpReply, kind: type) -> Any:
        """`data` of a success, which has to be of this type; raises what any other answer means."""
        body = self._body(reply)
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, kind):
            raise UnexpectedResponse(CLOUD, "Lambda's answer has no data of the documented shape")
        return data


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
