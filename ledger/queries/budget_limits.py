"""Read and write budgets that were set while the service runs. Those of the policy file are not here."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from decimal import Decimal

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.models import BudgetLimit


async def budgets_set(tx: AsyncSession) -> dict[str, dict[str, Decimal]]:
    """Return the limits that were set: scope → period → dollars."""
    found: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    for row in await tx.scalars(select(BudgetLimit).order_by(BudgetLimit.scope, BudgetLimit.period)):
        found[row.scope][row.period] = row.limit_usd
    return dict(found)


async def put_budget(
    tx: AsyncSession, scope: str, period: str, limit_usd: Decimal | None, by: str, at: datetime
) -> None:
    """Store a limit, or delete it when there is none."""
    if limit_usd is None:
        await tx.execute(delete(BudgetLimit).where(BudgetLimit.scope == scope, BudgetLimit.period == period))
        return
    values = {"limit_usd": limit_usd, "set_by": by, "set_at": at}
    insert = insert_for(tx, BudgetLimit).values(scope=scope, period=period, **values)
    await tx.execute(insert.on_conflict_do_update(index_elements=["scope", "period"], set_=values))
