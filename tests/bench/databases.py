"""One measurement on both databases, one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from ledger.engine.db import Database
from tests.support.databases import copy_sqlite, migrated_sqlite, postgres_template

#: Name of the workload, what it took, and what that means.
Line = tuple[str, str, str]


async def on_both(measure: Callable[[str, Database], AsyncIterator[Line]]) -> AsyncIterator[Line]:
    """What `measure` says of a new SQLite ledger and of a new PostgreSQL one."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sqlite = Database(copy_sqlite(migrated_sqlite(folder), folder))
        stack.push_async_callback(sqlite.close)
        async for line in measure("SQLite", sqlite):
            yield line
        template = stack.enter_context(postgres_template())
        postgres = Database(await stack.enter_async_context(template.clone()))
        stack.push_async_callback(postgres.close)
        async for line in measure("PostgreSQL", postgres):
            yield line
