"""A fresh account of TensorDock's sandbox for each test of a module, on one server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.contract.served import Clouds, serving
from tests.providers.served import Served, bench


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clouds() -> AsyncIterator[Clouds]:
    async with serving() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def cloud(clouds: Clouds) -> AsyncIterator[Served]:
    async with bench(clouds, "tensordock", "/api/v2") as served:
        yield served
