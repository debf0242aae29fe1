"""Budgets that were set while the service runs."""

from __future__ import annotations

from decimal import Decimal

from ledger.engine.db import Database
from ledger.queries.budget_limits import budgets_set, put_budget
from tests.support.clock import START


async def test_a_limit_is_set_changed_and_deleted_alone(db: Database) -> None:
    async with db.write() as tx:
        assert await budgets_set(tx) == {}
        for scope, period, usd in (("team", "month", "900"), ("team", "day", "50"), ("user:UADA", "day", "20")):
            await put_budget(tx, scope, period, Decimal(usd), "operator:root", START)
    async with db.write() as tx:
        await put_budget(tx, "team", "day", Decimal("60.5"), "operator:eve", START)
        await put_budget(tx, "user:UADA", "month", None, "operator:eve", START)  # There is none.
    async with db.read() as tx:
        assert await budgets_set(tx) == {
            "team": {"day": Decimal("60.5"), "month": Decimal(900)},
            "user:UADA": {"day": Decimal(20)},
        }
    async with db.write() as tx:
        await put_budget(tx, "team", "month", None, "operator:eve", START)
        await put_budget(tx, "user:UADA", "day", None, "operator:eve", START)
        assert await budgets_set(tx) == {"team": {"day": Decimal("60.5")}}
