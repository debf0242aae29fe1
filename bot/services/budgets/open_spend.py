"""Settle what approvals may still spend, so that a budget check reads sums and not every session."""

from __future__ import annotations

from bot.services.runtime.context import Context
from ledger.queries.budgets.open_spend import are_many, settle

#: With fewer changes than this nothing is settled: a budget check computes those sessions itself in a few milliseconds.
SETTLED_FROM = 200
#: Changes of one transaction: few enough that no other writer waits for long.
BATCH = 500
#: It is looked this often whether there are so many.
LOOK_S = 10.0


async def settle_due(ctx: Context) -> int:
    """Settle the oldest changes when there are many. Return how many were settled."""
    async with ctx.db.read() as tx:
        if not await are_many(tx, SETTLED_FROM):
            return 0
    async with ctx.db.write() as tx:
        return await settle(tx, BATCH)
