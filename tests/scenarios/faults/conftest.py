"""Faults of clouds: every test must come to rest, with nothing stuck, no orphan, and bills that agree."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.engine.db import Database
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service whose faults are healed after the test; then every invariant must hold, liveness included."""
    async with checked_world(db, clock, heal=True) as built:
        yield built
