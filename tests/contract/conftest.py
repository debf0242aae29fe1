"""The bench, once per registered cloud. One server per module; each test starts on an empty account."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from tests.contract.known_errors import undocumented
from tests.contract.served import Bench, Clouds, serving, unpaced
from tests.support.matrix import clouds_with


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clouds() -> AsyncIterator[Clouds]:
    """All sandboxes behind one server."""
    async with serving() as running:
        yield running


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each registered cloud in turn, or those that have what the test's `needs` say."""
    given = {str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")}
    if "cloud_name" in metafunc.fixturenames and not any("cloud_name" in names for names in given):
        wanted = {k: v for mark in metafunc.definition.iter_markers("needs") for k, v in mark.kwargs.items()}
        metafunc.parametrize("cloud_name", clouds_with(**wanted))


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
    await engine.ssh_ports.close_all()
    clouds.recorder.exchanges.clear()
    entry = REGISTRY[cloud_name]
    environment = sandbox.environment(f"{clouds.url}/{cloud_name}")
    provider = entry.connect(environment, clouds.clock, unpaced(clouds.clock))
    try:
        yield Bench(entry, clouds, provider, sandbox)
    finally:
        await provider.close()
    assert undocumented(cloud_name, clouds.recorder.exchanges) == []
