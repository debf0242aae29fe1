"""Costs in windows of people's own calendar, while entries wait to be folded."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import func, select

from bot.services.billing.rollup import entry_hash
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.models import EntryHash, Rollup
from ledger.queries.calendar_costs import by_borders, costs_within
from ledger.queries.rollup import fold
from ledger.queries.spend import Purse, spent
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("folded", [0, 3, 9])
async def test_an_entry_counts_for_the_day_in_which_its_hour_begins(db: Database, folded: int) -> None:
    """Days begin at 22:30 UTC here: the hour from 22:00 on is the day's before it."""
    first = START.replace(hour=22, minute=30)
    border = first + 24 * HOUR
    moments = (-1830, -1, 1799, 1800, 86_400 - 1, 86_400 + 1800, 48 * 3600 + 1800)
    async with db.write() as tx:
        row = await rows.instance(tx)
        for n, second in enumerate(moments):
            await rows.entry(tx, row, str(2**n), at=first + second * SECOND)
    async with db.write() as tx:
        await fold(tx, folded, entry_hash)
    async with db.read() as tx:
        assert await by_borders(tx, [first, border, border + 24 * HOUR]) == [8 + 16, 32]
        assert await by_borders(tx, [first - 24 * HOUR, first, first]) == [1 + 2 + 4, 0]
        windows = [(first, border), (border, border + 24 * HOUR)]
        shares = [{"cloud": [("vast", Decimal(usd))]} for usd in (8 + 16, 32)]
        assert await costs_within(tx, windows, ("cloud",)) == shares
        assert await costs_within(tx, [], ("cloud",)) == []
        # A time within an hour is read from the entries themselves.
        assert await spent(tx, Purse(), first - SECOND, first + 1799 * SECOND) == 2


async def test_what_was_not_spent_is_hashed_and_not_summed(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx)
        await rows.entry(tx, row, "5", kind=EntryKind.RESERVE)
        await rows.entry(tx, row, "5", kind=EntryKind.RELEASE)
        assert await fold(tx, 1, entry_hash) == 1
        assert await fold(tx, 9, entry_hash) == 1
        assert await fold(tx, 9, entry_hash) == 0
    async with db.read() as tx:
        assert await tx.scalar(select(func.count()).select_from(EntryHash)) == 2
        assert await tx.scalar(select(func.count()).select_from(Rollup)) == 0
