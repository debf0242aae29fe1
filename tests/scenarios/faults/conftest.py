"""Faults of clouds: every test must come to rest, with nothing stuck, no orphan, and bills that agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.engine.db import Database
from tests.support.clock import SteppedClock
from tests.support.matrix import take_turns
from tests.support.world import World, checked_world

HERE = Path(__file__).parent
#: Whose subject is what a database does when several write at once.
ON_BOTH = ("test_clicks", "test_replicas")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Faults of clouds take turns; races run on both databases."""
    take_turns(config, items, [item for item in items if item.path.parent == HERE and item.path.stem not in ON_BOTH])


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service whose faults are healed after the test; then every invariant must hold, liveness included."""
    async with checked_world(db, clock, heal=True) as built:
        yield built
