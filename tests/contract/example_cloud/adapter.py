"""Cirrus, a cloud that exists for these tests only: a plain REST API over machines with RTX 4090s."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from ledger.kernel.grant import Grant
from providers.adapter import CloudAdapter, CloudConfig
from providers.adapter_helpers import fits, seconds
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.completeness import AnswerPart, Rest
from providers.contract import InstanceSpec, InstanceStatus, Listing, NotSeen, ObservedInstance, Offer, SshEndpoint
from providers.error_table import first, row
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Unavailable,
)
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from providers.http import HttpReply
from providers.rate_limits import Pace

CLOUD = "cirrus"
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


class CirrusConfig(CloudConfig):
    """How to reach one Cirrus account."""

    base_url: str = "https://api.cirrus.example"


#: Every documented refusal; all of them leave nothing behind.
REFUSALS = (
    row(401, AuthFailed, "cirrus does not accept the API key"),
    row(402, InsufficientFunds, "the cirrus account cannot pay for it"),
    row(409, NoCapacity, "the offer is gone"),
    row(422, InvalidSpec, "cirrus refuses the order as malformed"),
    row(429, RateLimited, "cirrus was called too often"),
)


class CirrusProvider(CloudAdapter):
    """One Cirrus account."""

    name = CLOUD
    capabilities = CAPABILITIES
    KEY_PAGE = "https://cirrus.example/keys"
    KEY_VARIABLE = "CIRRUS_API_KEY"
    CREATE = ("POST", "/machines")

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        return None if reply.ok else _error(reply)

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        if spot is True:
            return AnswerPart()
        at = self._clock.now()
        rows = (await self._read("GET", "/offers"))["offers"]
        return AnswerPart(tuple(offer for row in rows if (offer := _offer(row, at)) and fits(offer, constraint)))

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        body = {
            "offer": spec.offer.key,
            "name": spec.name,
            "image": spec.image,
            "keys": [*spec.public_keys, *filter(None, [spec.login_key])],
            "env": dict(spec.env),
        }
        reply = await self._post(spec, body)
        if reply.status == 201 and isinstance(reply.fields.get("id"), str):
            return _observed(reply.fields)
        raise _error(reply) if 400 <= reply.status < 500 else OutcomeUnknown(CLOUD, "cirrus did not say what it made")

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        at = self._clock.now()
        reply = await self._http.read("GET", f"/machines/{self._checked(ref)}")
        return NotSeen(CLOUD, at) if reply.status == 404 else _observed(self._object(reply))

    async def list(self) -> Listing:
        at = self._clock.now()
        rows = (await self._read("GET", "/machines"))["machines"]
        return Listing(CLOUD, self.account, at, tuple(_observed(row) for row in rows))

    async def terminate(self, ref: str) -> bool:
        reply = await self._http.read("DELETE", f"/machines/{self._checked(ref)}")
        if reply.status == 404:
            return False
        self._object(reply)
        return True


def _error(reply: HttpReply) -> ProviderError:
    found = first(REFUSALS, reply.status)
    if found is None:
        return Unavailable(CLOUD, f"cirrus answered {reply.status}")
    return found.error(CLOUD, seconds(reply.headers.get("retry-after")))


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
