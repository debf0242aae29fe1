"""A Kaggle sandbox on a real port with an adapter for it, for the tests beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx

from ledger.kernel.grant import Grant, GrantKind
from providers.clouds.kaggle.adapter import KaggleConfig, KaggleProvider
from providers.clouds.kaggle.instances import offer as the_offer
from providers.contract import InstanceSpec, ObservedInstance, Offer
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine
from providers.sandbox.kaggle.sandbox import KaggleSandbox
from providers.sandbox.server import build_app
from tests.support.clock import START, SteppedClock
from tests.support.serving import serving

TWO = GpuConstraint(names=("T4",), count_min=2, count_max=2)
NAME = "contract-ab12-0123456789abcdef-01-mac0mac0ma"
SECRET = "swordfish-env-secret"
CALL = "/v1/kernels.KernelsApiService"
SOURCE = {
    "newTitle": "My Kernel",
    "text": "print(1)\n",
    "language": "python",
    "kernelType": "script",
    "isPrivate": True,
    "enableGpu": True,
    "sessionTimeoutSeconds": 3600,
    "machineShape": "NvidiaTeslaT4",
}


@dataclass(frozen=True, slots=True)
class Served:
    engine: Engine
    clock: SteppedClock
    cloud: KaggleSandbox
    provider: KaggleProvider
    http: httpx.AsyncClient
    url: str

    def arm(self, name: str, times: int | None = 1, **params: Any) -> None:
        self.engine.faults.arm("kaggle", name, times, **params)

    def step(self, seconds: float) -> None:
        """Let sandbox and adapter time pass."""
        self.clock.advance(seconds)

    async def call(self, method: str, body: dict[str, Any]) -> httpx.Response:
        return await self.http.post(f"{CALL}/{method}", json=body)

    async def push(self, slug: str, **changes: Any) -> httpx.Response:
        """A push that did not come from our adapter."""
        return await self.call("SaveKernel", {"slug": f"{self.cloud.USERNAME}/{slug}", **SOURCE, **changes})


@asynccontextmanager
async def running(timing: SandboxTiming | None = None, **config: Any) -> AsyncIterator[Served]:
    """A sandbox on a port of its own, an adapter for it, and a plain client with the right key."""
    clock = SteppedClock()
    engine = Engine(clock, timing or SandboxTiming.quick())
    cloud = KaggleSandbox(engine)
    async with serving(build_app({"kaggle": cloud}, tick_s=None)) as base:
        url = f"{base}/kaggle"
        given = {"username": cloud.USERNAME, "api_key": cloud.API_KEY, "base_url": url, **config}
        provider = KaggleProvider(KaggleConfig(**given), clock, LocalPacer(clock, 0))
        login = (cloud.USERNAME, cloud.API_KEY)
        try:
            async with httpx.AsyncClient(base_url=url, auth=login, trust_env=False) as http:
                yield Served(engine, clock, cloud, provider, http, url)
        finally:
            await provider.close()


def grant(hours: str = "4", label: str = NAME) -> Grant:
    cap = Decimal(0)
    until = START + timedelta(minutes=30)
    return Grant("gnt_1", "req_1", GrantKind.CREATE, label, cap, cap, Decimal(hours), until)


def spec(name: str = NAME, **changes: Any) -> InstanceSpec:
    offer: Offer = changes.pop("offer", None) or the_offer(START, None, 3600)
    given: dict[str, Any] = {"env": {"TOKEN": SECRET}, "onstart": "python train.py", **changes}
    return InstanceSpec(name, offer, "", 20, **given)


async def create(served: Served, name: str = NAME, hours: str = "4") -> ObservedInstance:
    return await served.provider.create(spec(name), grant(hours, name))


async def get(served: Served, ref: str) -> ObservedInstance:
    seen = await served.provider.get(ref)
    assert isinstance(seen, ObservedInstance)
    return seen
