"""A deployment with a ledger that has lived, on either database, and what a test reads of it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from bot.services.audit.journal import hash_events_due
from bot.services.backups.installation import Installation
from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from ledger.models import Event, Request
from providers.sandbox.clock import SandboxTiming
from tests.support import rows
from tests.support.clock import SteppedClock
from tests.support.world import World, world

KEY = "ab" * 32
PASSPHRASE = "a passphrase of the tests"


def installation(url: str, folder: Path, **more: object) -> Installation:
    """The installation of a ledger; a SQLite file lies in the folder itself."""
    ledger = Path(url.partition(":///")[2]) if url.startswith("sqlite") else None
    facts: dict[str, object] = {"deployment": "tst1", "key_hex": KEY, "policy": folder / "policy.yml", **more}
    return Installation(url, ledger, folder, **facts)  # type: ignore[arg-type] # Of the right types by their names.


@dataclass(frozen=True)
class Contents:
    """How many requests and events a ledger has."""

    requests: int
    events: int


@asynccontextmanager
async def living(url: str, clock: SteppedClock) -> AsyncIterator[World]:
    """A world on this ledger, whose connections are closed at the end."""
    db = Database(url)
    try:
        async with world(db, clock, sandbox=SandboxTiming.quick()) as built:
            yield built
    finally:
        await db.close()


async def rent(url: str, clock: SteppedClock) -> Contents:
    """Start a session on the ledger, hash its journal, and say what is there now."""
    async with living(url, clock) as built:
        await built.running()
        await hash_events_due(built.ctx)
    return await contents(url)


async def go_on(url: str, clock: SteppedClock) -> Contents:
    """Let more happen on a ledger that has lived, and say what is there now."""
    async with living(url, clock) as built:
        async with built.ctx.db.write() as tx:
            request = await rows.request(tx)
            await rows.event(tx, EventKind.REQUEST_MADE, request.id)
        await hash_events_due(built.ctx)
    return await contents(url)


async def contents(url: str) -> Contents:
    """What is in a ledger."""
    db = Database(url)
    try:
        async with db.read() as tx:
            counted = [await tx.scalar(select(func.count()).select_from(model)) or 0 for model in (Request, Event)]
    finally:
        await db.close()
    return Contents(*counted)


def contents_of_file(path: Path) -> Contents:
    """What is in a SQLite file."""
    counts = ("SELECT count(*) FROM requests", "SELECT count(*) FROM events")
    with closing(sqlite3.connect(path)) as file:
        return Contents(*(file.execute(count).fetchone()[0] for count in counts))
