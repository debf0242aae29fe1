"""Worlds for the API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.engine.db import Database
from tests.api.door import Door, opened
from tests.support.clock import SteppedClock
from tests.support.world import checked_world


@pytest.fixture
async def door(db: Database, clock: SteppedClock) -> AsyncIterator[Door]:
    """The API over a service; every invariant must hold afterwards."""
    async with checked_world(db, clock) as w, opened(w) as made:
        yield made


@pytest.fixture
async def sqlite_door(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Door]:
    """The same on SQLite only, with `--all` too: for what does not depend on the ledger."""
    async with checked_world(sqlite_db, clock) as w, opened(w) as made:
        yield made
