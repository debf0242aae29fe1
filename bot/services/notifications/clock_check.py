"""Compare the clocks every few seconds, and page the operators once when this machine's is in doubt."""

from __future__ import annotations

import logging
import platform
from datetime import datetime, timedelta

from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.context import Context
from ledger.core import announce, bring_forward, put_off
from ledger.kernel.states import NotificationKind
from ledger.queries.audit import database_time

#: Seconds between two checks.
LOOK_S = 5.0
#: What is due or claimed for longer than this was put off by a wrong clock: no pause and no lease is so long. Where
#: a setting makes one longer, a process that starts looks once too often.
LONGEST_PAUSE = timedelta(minutes=15)
#: A start that no cloud has confirmed for so many seconds is paged: no approved end comes until then.
UNCONFIRMED_S = 300.0

log = logging.getLogger(__name__)


async def clock_check_due(ctx: Context) -> int:
    """Read the database's time, and page when a doubt about the clock begins. Return how many messages were written.

    The message is updated when the clocks agree again. A start that no cloud has confirmed yet is a reason to page
    after some minutes only.
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
    if (clock.was_in_doubt and not doubt) or (doubt and clock.is_corrected and not clock.was_corrected):
        await _bring_forward(ctx, clock.now())
    clock.was_in_doubt, clock.was_corrected = bool(doubt), clock.is_corrected
    unconfirmed = bool(doubt) and not clock.is_confirmed
    if unconfirmed and (clock.unconfirmed_s < UNCONFIRMED_S or not ctx.providers):
        return 0
    if bool(doubt) == bool(clock.paged_as) and unconfirmed == clock.paged_unconfirmed:
        return 0
    now, host = clock.now(), platform.node()
    # A doubt that comes and goes is one message an hour.
    subject = clock.paged_as or f"clock/{host}/{now:%Y-%m-%dT%H}"
    sentence = f"The clock of {host} is right again."
    if unconfirmed:
        sentence = (
            f"Since GPU Shopper started on {host}, no cloud has shown it the time. Until one does, nothing is bought "
            "or booked there, and no approved end comes. Check the network of that machine, and the clouds' consoles."
        )
    elif doubt:
        sentence = (
            f"The clock of {host} seems wrong: {doubt}. Until the clocks agree, nothing is bought, only people and "
            "approved ends end anything, and no final cost is booked. Check the time service of that machine."
        )
    async with ctx.db.write() as tx:
        kind = NotificationKind.OPERATOR_PAGE
        await announce(tx, now, kind, subject, destination=OPERATORS, body={"text": sentence})
    clock.paged_as, clock.paged_unconfirmed = subject if doubt else "", unconfirmed
    ctx.hints.outbox.set()
    return 1


async def _bring_forward(ctx: Context, now: datetime) -> None:
    """Make due now what this process, or an earlier one, made due far too late because its clock was wrong."""
    latest = now + LONGEST_PAUSE
    async with ctx.db.read() as tx:
        tables = await put_off(tx, latest)
    for table in tables:
        async with ctx.db.write() as tx:
            found = await bring_forward(tx, table, now, latest)
        log.warning("%d rows of %s were put off by a wrong clock, and are due now", found, table.__tablename__)
    if tables:
        for hint in (ctx.hints.requests, ctx.hints.instances, ctx.hints.sessions, ctx.hints.outbox):
            hint.set()
