"""Compare the GPU-hours of 30 days with public prices of reservations, for the first digest of a month."""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.rules.reports.digest import Window
from bot.rules.reports.reservations import DAYS, Used
from bot.rules.reports.reservations import advice as advise
from ledger.engine.db import Database
from ledger.queries.digest import stops
from ledger.queries.runs.used import any_billed_before, billed_times

#: Sentences of one digest.
LISTED = 3


async def advice(db: Database, window: Window, now: datetime) -> tuple[str, ...]:
    """Return what a reservation would have saved in the 30 days before the window's end.

    Nothing while fewer days are known: a month with its first half missing is no steady use.
    """
    since = window.until - timedelta(days=DAYS)
    async with db.read() as tx:
        if not await any_billed_before(tx, since + timedelta(days=1)):
            return ()
        rows = await billed_times(tx, since, window.until)
        stopped = await stops(tx, [row.session_id for row in rows], window.until)
    used = (
        Used(
            row.cloud,
            row.gpu,
            row.count,
            row.price_usd_h,
            row.since,
            min(row.until or window.until, window.until),
            tuple(stopped.get(row.session_id, ())),
        )
        for row in rows
    )
    return advise(used, window.until, now.date())[:LISTED]
