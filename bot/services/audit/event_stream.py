"""Stream the journal to one caller: every event at least once, in the order in which it becomes visible.

An id contains the time of its event, and a transaction that began earlier may commit later. So each read goes back over
the last seconds and passes on what it has not passed on yet. After a reconnect those seconds are read again: an event
may come twice, with the same id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.rules.values.reply_code import ReplyCode
from bot.services.access import api_keys, authorization
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.ids import first_id
from ledger.models import Event
from ledger.queries.access import Whose
from ledger.queries.journal import event_at, event_ids, events_by_id

LOOK_EVERY_S = 1.0
#: How late a transaction may commit. Longer ones do not exist here: nothing waits for a network inside one.
LATE = timedelta(seconds=10)
#: A stream ends after this, and its client connects again, so that no dead connection stays open.
LONGEST = timedelta(minutes=15)
SCANNED, BATCH = 5_000, 200


@dataclass
class Following:
    """One event stream: where it began, and which events it has sent."""

    ctx: Context
    who: Principal
    whose: Whose | None
    began: datetime
    position: datetime
    _passed: OrderedDict[str, None] = field(default_factory=OrderedDict)

    async def look(self) -> Sequence[Event]:
        """Return the events that have become visible since the last read, at most `BATCH`."""
        since: str | None = first_id("evt", self.position - LATE)
        new: list[str] = []
        async with self.ctx.db.read() as tx:
            while since is not None and not new:
                ids = await event_ids(tx, since, self.whose, SCANNED)
                new = [one for one in ids if one not in self._passed][:BATCH]
                since = ids[-1] if len(ids) == SCANNED else None
            found = await events_by_id(tx, new) if new else []
        self._passed.update(dict.fromkeys(new))
        if found:
            self.position = max(self.position, found[-1].at)
        oldest = first_id("evt", self.position - LATE)
        while self._passed and next(iter(self._passed)) < oldest:
            self._passed.popitem(last=False)
        return found

    async def stream(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the events of one read after another, until the key stops working or the stream is too old.

        A read without new events yields an empty list.
        """
        clock = self.ctx.clock
        while clock.now() - self.began < LONGEST:
            if not await api_keys.works(self.ctx.db, self.who, clock.now()):
                return
            found = await self.look()
            yield found
            if len(found) < BATCH:
                await clock.sleep(LOOK_EVERY_S)


async def begin(ctx: Context, who: Principal, after: str | None) -> Following | Reply:
    """Begin a stream from now, or from an event that was received before."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        whose = await authorization.visible(tx, ctx.policy, who)
        position = await event_at(tx, after) if after else now
    if position is None:
        return refuse(ReplyCode.UNKNOWN_EVENT, f"There is no event {(after or '')[:40]}; begin without one.")
    # A new stream skips what happened before now; a continued one looks back for late events.
    return Following(ctx, who, whose, now, position if after else now + LATE)
