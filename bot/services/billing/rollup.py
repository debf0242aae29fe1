"""Fold ledger entries into the rollup that costs are read from, and hash them into a chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.rules.audit.hash_chain import event_hash
from bot.services.runtime.context import Context
from ledger.queries.rollup import fold

#: Entries of one transaction: few enough that no other writer waits for long.
BATCH = 500


def entry_hash(before: str, entry: Mapping[str, Any]) -> str:
    """Return the hash of an entry after the hash `before`."""
    plain = {**entry, "amount_usd": f"{entry['amount_usd']:.6f}", "at": entry["at"].isoformat()}
    return event_hash(before, plain)


async def roll_due(ctx: Context) -> int:
    """Fold what was booked since the last pass. Return how many entries were folded."""
    async with ctx.db.write() as tx:
        return await fold(tx, BATCH, entry_hash)
