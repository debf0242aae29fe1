"""How much waits to be done: for the health page, for operators, and for benchmarks."""

from __future__ import annotations

from ledger.db import Database
from ledger.figures import waiting_rows


async def waiting(db: Database) -> dict[str, int]:
    """Rows that are due for somebody: messages to process, requests to quote, creates to send, messages to show."""
    async with db.read() as tx:
        return await waiting_rows(tx)
