"""A world whose clouds rent out volumes; every test must leave the invariants whole."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.engine.db import Database
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service with every cloud of the registry, and with their volumes."""
    async with checked_world(db, clock, volumes=True) as built:
        yield built
