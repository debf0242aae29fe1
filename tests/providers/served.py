"""Any cloud's sandbox on a real port, its adapter and a plain client, for the tests beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from tests.contract.served import Bench, Clouds, unpaced


@dataclass(frozen=True, slots=True)
class Served(Bench):
    """The bench with a plain client that has the right key."""

    http: httpx.AsyncClient

    @property
    def account(self) -> Any:
        return self.sandbox.account  # type: ignore[attr-defined] # Each sandbox has its own kind of account.

    async def ask(self, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        """Status and body of a call by hand."""
        reply = await self.http.request(method, path, **kwargs)
        try:
            return reply.status_code, reply.json()
        except ValueError:
            return reply.status_code, reply.text


@asynccontextmanager
async def bench(clouds: Clouds, name: str, prefix: str) -> AsyncIterator[Served]:
    """A fresh account and market of one cloud on the running server; paths of the client begin after `prefix`."""
    engine, sandbox = clouds.engine, clouds.sandboxes[name]
    engine.timing = SandboxTiming.quick()
    engine.faults.disarm()
    engine.creates.clear()
    engine.calls.clear()
    sandbox.reset()
    await engine.ssh_ports.close_all()
    url = f"{clouds.url}/{name}"
    provider = REGISTRY[name].connect(sandbox.environment(url), clouds.clock, unpaced(clouds.clock))
    headers = {"Authorization": f"Bearer {sandbox.API_KEY}"}
    async with httpx.AsyncClient(base_url=url + prefix, headers=headers, trust_env=False) as http:
        yield Served(REGISTRY[name], clouds, provider, sandbox, http)
    await provider.close()
