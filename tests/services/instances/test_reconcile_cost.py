"""What a look costs the ledger while all is quiet: it runs for every cloud, every few seconds, for ever."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from bot.services.billing import metering
from bot.services.instances import reconcile
from bot.services.sessions import idle_termination, overspend
from ledger.engine.db import Database
from ledger.kernel.states import OrphanState
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.builders import asked
from tests.support.clock import SteppedClock
from tests.support.world import World, world


async def test_a_quiet_look_asks_one_question_and_a_twin_is_still_found(w: World) -> None:
    await w.running(candidates=("vast",))
    with asked() as said:
        found = await reconcile.observe(w.ctx, "vast")
    assert (found.listed, found.urgent) == (1, False)
    assert said == ["(SELECT"]  # Whether an orphan is open is asked in the statement that reads the instances.
    with asked() as said:
        await idle_termination.idle_terminations_due(w.ctx)
    assert [table for table in said if table != "marks"] == ["sessions"]
    (first,) = w.instances()
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    vast.account.rent(next(vast.account.market.slices()), {"label": first.name, "image": "x", "disk": 50})
    w.clock.advance(60)
    assert (await reconcile.observe(w.ctx, "vast")).urgent
    assert [stray.state for stray in (await w.books()).orphans] == [OrphanState.SEEN]


async def test_what_is_asked_every_few_seconds_reads_no_history(sqlite_db: Database, clock: SteppedClock) -> None:
    said: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            said.append((statement, parameters))

    async with world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w:
        await w.running(candidates=("vast",))
        event.listen(Engine, "before_cursor_execute", note)
        try:
            await overspend.overspend_due(w.ctx)
            await metering.accrue_due(w.ctx)
            await idle_termination.idle_terminations_due(w.ctx)
            await reconcile.observe(w.ctx, "vast")
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    with closing(sqlite3.connect(str(sqlite_db.url.database))) as raw:
        plans = [row[3] for one in said for row in raw.execute(f"EXPLAIN QUERY PLAN {one[0]}", one[1])]
    assert len(plans) > 8
    assert [plan for plan in plans if plan.startswith("SCAN") and plan.split()[1] not in NEVER_LONG] == []


#: What holds few rows however long the service runs: the last is the one row that says whether an orphan is open.
NEVER_LONG = frozenset({"orphans", "CONSTANT", "anon_1"})
