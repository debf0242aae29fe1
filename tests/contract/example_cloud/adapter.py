"""Cirrus, a cloud that exists for these tests only: a plain REST API over machines with RTX 4090s."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.job import GpuConstraint
from providers.adapter_helpers import only, same
from providers.capabilities import BillingRule, BillingStart, Capabilities
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
    SshEndpoint,
)
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
    Unsupported,
)
from providers.gpus.table import GPUS
from providers.http import CloudHttp, Credential, Reply, fingerprint
from providers.rate_limits import LocalPacer, Pace, Pacer, Pacing

CLOUD = "cirrus"
KEY_PAGE = "https://cirrus.example/keys"
REF = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)
CAPABILITIES = Capabilities(
    stop=False,
    spot=False,
    labels=True,
    balance=False,
    charges=False,
    logs=False,
    restart=False,
    meter_stop_verb="release",
    billing=BillingRule(quantum_s=60, starts=BillingStart.CREATE, storage_while_stopped=False, gpu_while_broken=True),
    name_max=80,
    rate_limits={"any": Pace(0.2, burst=10)},
)


class CirrusConfig(BaseModel):
    """How to reach one Cirrus account."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    api_key: Credential = SecretStr("")
    base_url: str = "https://api.cirrus.example"


class CirrusProvider:
    """One Cirrus account."""

    name = CLOUD
    capabilities = CAPABILITIES

    def __init__(self, config: CirrusConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        key = config.api_key.get_secret_value()
        self._has_key = bool(key)
        self._clock = clock
        self.account = fingerprint(key)
        pacing = Pacing(CLOUD, self.account, CAPABILITIES.rate_limits, pacer or LocalPacer(clock), lambda *_: ("any",))
        self._http = CloudHttp(CLOUD, config.base_url, {"Authorization": f"Bearer {key}"}, clock, pacing=pacing)

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, pages: int = 1
    ) -> tuple[Offer, ...]:
        if spot is True:
            return ()
        at = self._clock.now()
        rows = self._body(await self._http.read("GET", "/offers"))["offers"]
        return tuple(offer for row in rows if (offer := _offer(row, at)) and _fits(offer, constraint))

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        return same(await self.offers(only(offer), disk_gb=disk_gb, spot=offer.spot), offer)

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        await self._http.turn("POST", "/machines")
        return replace(spec, ready={})

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        spec = spec if spec.ready is not None else await self.prepare(spec, grant)
        body = {
            "offer": spec.offer.key,
            "name": spec.name,
            "image": spec.image,
            "keys": list(spec.public_keys),
            "env": dict(spec.env),
        }
        reply = await self._http.send_once("POST", "/machines", json=body)
        if reply.status == 201 and isinstance(reply.body, dict) and isinstance(reply.body.get("id"), str):
            return _observed(reply.body)
        raise _error(reply) if 400 <= reply.status < 500 else OutcomeUnknown(CLOUD, "cirrus did not say what it made")

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        listing = await self.list()
        found = [item for item in listing.items if (item.name or "").endswith(name_suffix)]
        if not found:
            return NotSeen(CLOUD, listing.at)
        return tuple(sorted(found, key=lambda item: item.created_at or listing.at))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        at = self._clock.now()
        reply = await self._http.read("GET", _path(ref))
        return NotSeen(CLOUD, at) if reply.status == 404 else _observed(self._body(reply))

    async def list(self) -> Listing:
        at = self._clock.now()
        rows = self._body(await self._http.read("GET", "/machines"))["machines"]
        return Listing(CLOUD, self.account, at, tuple(_observed(row) for row in rows))

    async def stop(self, ref: str) -> None:
        raise Unsupported(CLOUD, "cirrus cannot stop a machine")

    async def start(self, ref: str) -> None:
        raise Unsupported(CLOUD, "cirrus cannot stop a machine, so there is nothing to start")

    async def restart(self, ref: str) -> None:
        raise Unsupported(CLOUD, "cirrus has no restart")

    async def terminate(self, ref: str) -> bool:
        reply = await self._http.read("DELETE", _path(ref))
        if reply.status == 404:
            return False
        self._body(reply)
        return True

    async def balance(self) -> Balance:
        raise Unsupported(CLOUD, "cirrus tells no balance")

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        raise Unsupported(CLOUD, "cirrus has no bill by machine")

    async def preflight(self) -> Preflight:
        if not self._has_key:
            problem = "the API key is not set"
            return Preflight(CLOUD, ok=False, missing=("CIRRUS_API_KEY",), where=KEY_PAGE, problem=problem)
        try:
            await self.list()
        except ProviderError as error:
            return Preflight(
                CLOUD, ok=False, where=KEY_PAGE, problem=error.message, account=self.account, code=error.code
            )
        return Preflight(CLOUD, ok=True, account=self.account)

    async def close(self) -> None:
        await self._http.close()

    def _body(self, reply: Reply) -> dict[str, Any]:
        if not reply.ok:
            raise _error(reply)
        body = self._http.json(reply)
        if not isinstance(body, dict):
            raise UnexpectedResponse(CLOUD, "cirrus answered with something that is not an object")
        return body


def _path(ref: str) -> str:
    if not REF.fullmatch(ref):
        raise InvalidSpec(CLOUD, "that is not the id of a machine")
    return f"/machines/{ref}"


def _error(reply: Reply) -> ProviderError:
    """Every documented refusal; all of them leave nothing behind."""
    if reply.status == 429:
        after = reply.headers.get("retry-after", "")
        return RateLimited(CLOUD, "cirrus was called too often", float(after) if after.isdigit() else None)
    kinds: dict[int, tuple[type[ProviderError], str]] = {
        401: (AuthFailed, "cirrus does not accept the API key"),
        402: (InsufficientFunds, "the cirrus account cannot pay for it"),
        409: (NoCapacity, "the offer is gone"),
        422: (InvalidSpec, "cirrus refuses the order as malformed"),
    }
    kind, message = kinds.get(reply.status, (Unavailable, f"cirrus answered {reply.status}"))
    return kind(CLOUD, message)


def _offer(row: dict[str, Any], at: datetime) -> Offer | None:
    gpu = GPUS.get(str(row["gpu"]))
    if gpu is None:
        return None
    return Offer(
        cloud=CLOUD,
        key=str(row["id"]),
        gpu=gpu.name,
        gpu_count=int(row["count"]),
        memory_gb=Decimal(gpu.memory_gb),
        region=str(row["region"]),
        spot=False,
        price_usd_h=Decimal(str(row["usd_h"])),
        gpu_usd_h=Decimal(str(row["usd_h"])),
        fetched_at=at,
    )


def _fits(offer: Offer, wanted: GpuConstraint) -> bool:
    low, high = wanted.memory_gb_min or Decimal(0), wanted.memory_gb_max or Decimal(10_000)
    named = not wanted.names or offer.gpu in wanted.names
    return named and wanted.count_min <= offer.gpu_count <= wanted.count_max and low <= offer.memory_gb <= high


def _observed(row: dict[str, Any]) -> ObservedInstance:
    port = row.get("port")
    return ObservedInstance(
        cloud=CLOUD,
        ref=str(row["id"]),
        name=str(row["name"]),
        status=InstanceStatus(str(row["status"])),
        gpu=str(row["gpu"]),
        gpu_count=int(row["count"]),
        price_usd_h=Decimal(str(row["usd_h"])),
        storage_usd_h=Decimal(0),
        ssh=SshEndpoint("127.0.0.1", int(port)) if isinstance(port, int) else None,
        region=str(row["region"]),
        created_at=datetime.fromisoformat(row["created_at"]),
    )
