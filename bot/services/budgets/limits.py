"""Say which budgets are in force: those of the policy file, and those that were set later, which only tighten them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from bot.rules.budgets.budget import together
from bot.services.runtime.context import Context
from ledger.core import Tx
from ledger.queries.spend import budgets_set

Limits = Mapping[str, Mapping[str, Decimal]]


async def in_force(ctx: Context, tx: Tx) -> Limits:
    """Return every budget in force: the policy file's and those set later, the lower one where both exist."""
    found = await budgets_set(tx)
    return together(ctx.policy.budgets, found) if found else MappingProxyType(dict(ctx.policy.budgets))
