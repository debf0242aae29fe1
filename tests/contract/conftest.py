"""The bench, once per registered cloud. One server per module; each test starts on an empty account."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from providers.registry import REGISTRY
from providers.sandbox.engine import SandboxTiming
from tests.contract.served import Bench, Clouds, serving


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clouds() -> AsyncIterator[Clouds]:
    """All sandboxes behind one server."""
    async with serving() as running:
        yield running


@pytest.fixture(params=list(REGISTRY))
def cloud_name(request: pytest.FixtureRequest) -> str:
    """Each registered cloud in turn."""
    return str(request.param)


@pytest_asyncio.fixture(loop_scope="module")
async def bench(clouds: Clouds, cloud_name: str) -> AsyncIterator[Bench]:
    """The adapter of one cloud against its sandbox, both fresh."""
    engine = clouds.engine
    engine.timing = SandboxTiming.quick()
    engine.faults.disarm()
    engine.creates.clear()
    engine.calls.clear()
    sandbox = clouds.sandboxes[cloud_name]
    sandbox.reset()
    await engine.doors.close_all()
    entry = REGISTRY[cloud_name]
    environment = sandbox.environment(f"{clouds.url}/{cloud_name}")
    provider = entry.connect(environment, clouds.clock)
    try:
        yield Bench(entry, clouds, provider, sandbox)
    finally:
        await provider.close()
