"""The Vast.ai sandbox on a real port, an adapter for it and a plain client, for the tests beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.vast.sandbox import VastSandbox
from tests.contract.served import Bench, Clouds, unpaced


@dataclass(frozen=True, slots=True)
class Vast(Bench):
    """The bench with a plain client that has the right key."""

    http: httpx.AsyncClient

    @property
    def account(self) -> Any:
        assert isinstance(self.sandbox, VastSandbox)
        return self.sandbox.account

    async def ask(self, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        reply = await self.http.request(method, path, **kwargs)
        try:
            return reply.status_code, reply.json()
        except ValueError:
            return reply.status_code, reply.text


@asynccontextmanager
async def bench(clouds: Clouds) -> AsyncIterator[Vast]:
    """A fresh account and market on the running server."""
    engine, sandbox = clouds.engine, clouds.sandboxes["vast"]
    engine.timing = SandboxTiming.quick()
    engine.faults.disarm()
    engine.creates.clear()
    engine.calls.clear()
    sandbox.reset()
    await engine.ssh_ports.close_all()
    url = f"{clouds.url}/vast"
    provider = REGISTRY["vast"].connect(sandbox.environment(url), clouds.clock, unpaced(clouds.clock))
    headers = {"Authorization": f"Bearer {sandbox.API_KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
        yield Vast(REGISTRY["vast"], clouds, provider, sandbox, http)
    await provider.close()


async def create(vast: Vast, **body: Any) -> tuple[int, Any]:
    """A create by hand, on the cheapest offer: status and body."""
    offer = await vast.offer()
    return await vast.ask("PUT", f"/api/v0/asks/{offer.key}/", json={"image": "x", "disk": 20, **body})
