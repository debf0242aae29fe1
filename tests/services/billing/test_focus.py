"""The FOCUS file and a team's statement: every amount once, with team, owner and project, and sums that agree."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.billing.focus import COLUMNS
from bot.services.billing import focus, shared_ledger
from bot.services.billing.focus import Statement, focus_csv, statement
from bot.services.runtime.commands import Reply
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.calendar_spans import after, begin
from ledger.kernel.states import RollupTier
from tests.rules.billing.test_focus import conforms
from tests.support.clock import SteppedClock
from tests.support.world import ALICE, BOB, World, checked_world


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    async with checked_world(db, clock) as world:
        yield world


async def rows_of(w: World, actor: Actor | None, since: datetime) -> list[dict[str, str]]:
    parts = [part async for part in focus_csv(w.ctx, actor, since, after(RollupTier.MONTH, since))]
    read = csv.DictReader(io.StringIO("".join(parts)))
    assert tuple(read.fieldnames or ()) == COLUMNS
    return list(read)


async def test_the_file_has_every_amount_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus, "PAGE", 2)
    w.tune(teams={"ml": (ALICE.ref,)})
    request_id = await w.running(candidates=("vast",))
    await w.run(3 * 60, 60)
    await w.end(request_id)
    await w.run(150, 15)
    tool = {"skill": "storage", "provider": "s3", "action": "store", "amount_usd": "1.25"}
    entry = {**tool, "timestamp": (w.clock.now() - timedelta(minutes=1)).isoformat()}
    assert (await shared_ledger.append(w.ctx, BOB, entry)).ok
    month = begin(RollupTier.MONTH, w.clock.now())
    found = await rows_of(w, None, month)
    for row in found:
        conforms(row)
    booked = (await shared_ledger.verify(w.ctx)).spent_usd
    assert sum(Decimal(row["BilledCost"]) for row in found) == booked > Decimal("1.25")
    assert {row["x_Team"] for row in found if row["x_Owner"] == ALICE.ref} == {"ml"}
    assert [row["ProviderName"] for row in found if row["x_Tool"] == "storage"] == ["s3"]
    own = await rows_of(w, ALICE, month)
    assert {row["x_Owner"] for row in own} == {ALICE.ref}
    assert await rows_of(w, None, after(RollupTier.MONTH, month)) == []

    stated = await statement(w.ctx, "ml", month)
    assert isinstance(stated, Statement)
    assert stated.total_usd == sum(Decimal(row["BilledCost"]) for row in own)
    for by in ("owner", "project", "cloud", "gpu"):
        assert sum(usd for _, usd in stated.groups[by]) == stated.total_usd, by
    assert f"statement for {month:%B %Y}" in focus.as_markdown(stated)
    none = await statement(w.ctx, "web", month)
    assert isinstance(none, Reply)
    assert none.sentence == "The policy has no team web. Its teams: ml."
