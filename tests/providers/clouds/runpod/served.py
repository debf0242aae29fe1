"""A RunPod sandbox on a real port with an adapter for it, for the tests beside this file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx

from ledger.kernel.grant import Grant, GrantKind
from providers.contract import InstanceSpec, ObservedInstance, Offer, Provider
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine
from providers.sandbox.runpod.sandbox import RunPodSandbox
from providers.sandbox.server import build_app
from tests.support.clock import START, SteppedClock
from tests.support.serving import serving

ONE = GpuConstraint()


@dataclass(frozen=True, slots=True)
class Served:
    engine: Engine
    cloud: RunPodSandbox
    provider: Provider
    http: httpx.AsyncClient

    def arm(self, name: str, times: int | None = 1, **params: Any) -> None:
        self.engine.faults.arm("runpod", name, times, **params)

    def travel(self, seconds: float) -> None:
        self.engine.clock.travel(seconds)


@asynccontextmanager
async def running(timing: SandboxTiming) -> AsyncIterator[Served]:
    """A sandbox on a port of its own, an adapter for it, and a plain client with the right key."""
    clock = SteppedClock()
    engine = Engine(clock, timing, bad_rows=True)
    cloud = RunPodSandbox(engine)
    async with serving(build_app({"runpod": cloud}, tick_s=None)) as base:
        url = f"{base}/runpod"
        provider = REGISTRY["runpod"].connect(cloud.environment(url), clock, LocalPacer(clock, 0))
        headers = {"Authorization": f"Bearer {cloud.API_KEY}"}
        try:
            async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
                yield Served(engine, cloud, provider, http)
        finally:
            await provider.close()


def grant(label: str) -> Grant:
    cap = Decimal(100)
    return Grant("gnt_1", "req_1", GrantKind.CREATE, label, cap, cap, Decimal(6), START + timedelta(hours=6))


async def cheap(served: Served, gpu: str = "RTX4090", disk_gb: int = 50) -> Offer:
    found = await served.provider.offers(GpuConstraint(names=(gpu,)), disk_gb=disk_gb, spot=False)
    return next(offer for offer in found if offer.key.startswith("community/"))


async def create(served: Served, name: str = "run-7f3c", **changes: Any) -> ObservedInstance:
    spec = InstanceSpec(name, await cheap(served), "runpod/pytorch:1.0.2", 50, ("ssh-ed25519 AAAA a",), **changes)
    return await served.provider.create(spec, grant(name))


async def get(served: Served, ref: str) -> ObservedInstance:
    seen = await served.provider.get(ref)
    assert isinstance(seen, ObservedInstance)
    return seen


async def banner(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return line
