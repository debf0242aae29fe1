"""The job that settles what approvals may still spend."""

from __future__ import annotations

import pytest

from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.services.budgets import open_spend
from bot.wiring import assemble
from ledger.engine.db import Database
from ledger.kernel.states import SessionState
from ledger.queries.budgets.open_spend import outstanding, wrong_sums
from ledger.queries.spend import EVERYBODY
from tests.support import rows
from tests.support.clock import START, SteppedClock


async def test_many_changes_are_settled_and_few_wait(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = assemble(db, SteppedClock(START), {}, rows.LABELS, policy=Policy(), timing=Timing())
    async with db.write() as tx:
        for _ in range(3):
            await rows.instance(tx, of=await rows.session(tx, SessionState.RUNNING))
        before = (await outstanding(tx, EVERYBODY, ()))[:2]
    assert await open_spend.settle_due(ctx) == 0
    monkeypatch.setattr(open_spend, "SETTLED_FROM", 5)
    assert await open_spend.settle_due(ctx) == 6  # Each session, and its grant.
    assert await open_spend.settle_due(ctx) == 0
    async with db.read() as tx:
        assert (await outstanding(tx, EVERYBODY, ()))[:2] == before
        assert await wrong_sums(tx) == []
