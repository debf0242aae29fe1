"""Number the journal's events soon after their commit, and wake what reads them in this process."""

from __future__ import annotations

from bot.services.runtime.context import Context
from ledger.queries.event_order import number_events, order_state

#: Every process looks this often, so that an event is numbered, and noticed here, within a second of its commit.
NUMBER_EVERY_S = 0.4


async def number_all(ctx: Context) -> int:
    """Number every event that was committed before this call. Return the newest position.

    This is never done in the transaction that writes an event, so no move waits for the one order of all of them.
    """
    async with ctx.db.read() as tx:
        state = await order_state(tx)
    while state.waiting:
        async with ctx.db.write() as tx:
            state = await number_events(tx, ctx.clock.now())
    return state.newest


class EventNumbering:
    """Number events at every look, and notice those that another replica has numbered."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._newest = 0

    async def look(self) -> int:
        """Run one pass. Return how many positions are new since the last one."""
        newest = await number_all(self._ctx)
        grown, self._newest = newest - self._newest, newest
        if grown:
            self._ctx.hints.journal.set()
        return grown
