"""Service tests run on both databases, against the sandboxes; every test must leave the invariants whole.

The longest walks, whose subject is what clouds do, take turns; `--soak` runs them on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.engine.db import Database
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.matrix import take_turns
from tests.support.world import World, checked_world, world

HERE = Path(__file__).parent
ABOUT_CLOUDS = {"test_downtime", "test_health", "test_lost"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One database in turn for what is about clouds."""
    walks = [item for item in items if item.path.is_relative_to(HERE) and item.path.stem in ABOUT_CLOUDS]
    take_turns(config, items, walks)


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service with every cloud of the registry, on each database."""
    async with checked_world(db, clock) as built:
        yield built


@pytest.fixture
async def bare(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """The same without the check afterwards: for tests that write their rows themselves."""
    async with world(db, clock, sandbox=SandboxTiming.quick()) as built:
        yield built
