"""Stream the journal to one caller by position: every event once, in the one order of all events.

An event has its position after its commit, however long that took after the event's own time. So nothing is missed,
and a caller that names the last event it received continues directly behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.rules.values.reply_code import ReplyCode
from bot.services.access import api_keys, authorization
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.event_order import number_all
from ledger.models import Event
from ledger.queries.access import Whose
from ledger.queries.event_order import events_after, newest_position, only, position_of

#: A key that stopped working ends its stream within this. New events come sooner, by a hint; one may miss a hint, and
#: still comes within a second of its commit.
LOOK_EVERY_S = 0.5
#: A stream ends after this, and its client connects again, so that no dead connection stays open.
LONGEST = timedelta(minutes=15)
#: Most positions that one read goes through.
SCANNED = 500


@dataclass
class Following:
    """One event stream: when it began, and the position up to which its events were sent."""

    ctx: Context
    who: Principal
    whose: Whose | None
    began: datetime
    position: int
    behind: bool = False

    async def look(self) -> Sequence[Event]:
        """Return the caller's events at the next `SCANNED` positions; `behind` says whether there are more."""
        async with self.ctx.db.read() as tx:
            self.position, found = await events_after(tx, self.position, SCANNED, *only(self.whose))
            self.behind = self.position < await newest_position(tx)
        return found

    async def stream(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the events of one read after another, until the key stops working or the stream is too old.

        A read without new events yields an empty list.
        """
        clock, hint = self.ctx.clock, self.ctx.hints.journal
        while clock.now() - self.began < LONGEST:
            if not await api_keys.works(self.ctx.db, self.who, clock.now()):
                return
            hint.clear()
            yield await self.look()
            if not self.behind:
                await self._pause(hint)

    async def _pause(self, hint: asyncio.Event) -> None:
        """Wait until this process notices new events, or until the key is to be checked again."""
        waiting = [asyncio.ensure_future(self.ctx.clock.sleep(LOOK_EVERY_S)), asyncio.ensure_future(hint.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


async def begin(ctx: Context, who: Principal, after: str | None) -> Following | Reply:
    """Begin a stream from now, or behind an event that was received before."""
    newest = await number_all(ctx)
    async with ctx.db.read() as tx:
        whose = await authorization.visible(tx, ctx.policy, who)
        position = await position_of(tx, after) if after else newest
    if position is None:
        return refuse(ReplyCode.UNKNOWN_EVENT, f"There is no event {(after or '')[:40]}. Start without one.")
    return Following(ctx, who, whose, ctx.clock.now(), position)
