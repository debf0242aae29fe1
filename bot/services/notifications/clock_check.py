"""Compare the clocks every few seconds, and page the operators once when this machine's is in doubt."""

from __future__ import annotations

import platform
from datetime import datetime, timedelta

from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.context import Context
from ledger.core import announce, bring_forward
from ledger.kernel.states import NotificationKind
from ledger.queries.audit import database_time

#: Seconds between two checks.
LOOK_S = 5.0
#: A message that is due later than this was put off by a wrong clock: no pause between two attempts is so long.
LONGEST_PAUSE = timedelta(hours=1)


async def clock_check_due(ctx: Context) -> int:
    """Read the database's time, and page when a doubt about the clock begins. Return how many messages were written.

    The message is updated when the clocks agree again. A start that no cloud has confirmed yet is no reason to page.
    """
    clock = ctx.clock
    if not isinstance(clock, GuardedClock):
        return 0
    began_s = clock.monotonic()
    shown = await database_time(ctx.db)
    if shown is not None:
        clock.note_database(shown, clock.monotonic() - began_s)
    doubt = clock.problem()
    if clock.was_in_doubt and not doubt:
        ctx.hints.clock.set()  # What waited for the right time need not wait for its next turn.
        await _bring_forward(ctx, clock.now())
    clock.was_in_doubt = bool(doubt)
    if bool(doubt) == bool(clock.paged_as) or (doubt and not clock.is_confirmed):
        return 0
    now, host = clock.now(), platform.node()
    # A doubt that comes and goes is one message an hour.
    subject = clock.paged_as or f"clock/{host}/{now:%Y-%m-%dT%H}"
    sentence = f"The clock of {host} is right again."
    if doubt:
        sentence = (
            f"The clock of {host} seems wrong: {doubt}. Until the clocks agree, nothing is bought, only people and "
            "approved ends end anything, and no final cost is booked. Check the time service of that machine."
        )
    async with ctx.db.write() as tx:
        kind = NotificationKind.OPERATOR_PAGE
        await announce(tx, now, kind, subject, destination=OPERATORS, body={"text": sentence})
    clock.paged_as = subject if doubt else ""
    ctx.hints.outbox.set()
    return 1


async def _bring_forward(ctx: Context, now: datetime) -> None:
    """Send at last what this process, or one before it, put off by the time by which its clock was wrong."""
    async with ctx.db.write() as tx:
        found = await bring_forward(tx, now, now + LONGEST_PAUSE)
    if found:
        ctx.hints.outbox.set()
