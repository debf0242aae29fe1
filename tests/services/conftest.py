"""Service tests run against the sandboxes; every test must leave the invariants whole."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.engine.db import Database
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world, world


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service with every cloud of the registry."""
    async with checked_world(db, clock) as built:
        yield built


@pytest.fixture
async def bare(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """The same without the check afterwards: for tests that write their rows themselves."""
    async with world(db, clock, sandbox=SandboxTiming.quick()) as built:
        yield built
