"""End sets of machines that are not whole any more: all machines of a set run, or none of them.

Every way in which a machine fails leaves a row that says so. So one pass over the rows finds each failure, whichever
process saw it, also after all of them were killed.
"""

from __future__ import annotations

import logging

from bot.rules.values.phrases import plural
from bot.services.instances.termination import end_session
from bot.services.notifications.interruption import ended_by_subject
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import StaleMove, lock_family
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import ENDABLE_SESSION
from ledger.models import Instance, Session
from ledger.queries.runs.node_sets import broken_sets, failed_first, is_whole

log = logging.getLogger(__name__)


async def broken_sets_due(ctx: Context) -> int:
    """End every set that lacks a machine; return how many."""
    async with ctx.db.read() as tx:
        found = await broken_sets(tx)
        if not found or clock_problem(ctx.clock) or await recovery_mode.is_on(tx):
            return 0
    for session_id in found:
        await alone(ctx, session_id, "the end of its set", _end(ctx, session_id), None)
    ctx.hints.instances.set()
    ctx.hints.outbox.set()
    ctx.hints.sweep.set()
    return len(found)


async def _end(ctx: Context, session_id: str) -> None:
    """Order the end of a broken set in one transaction: what is unsent is withdrawn, what runs is ended."""
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            await lock_family(tx, Session, session_id)
            session = await tx.get_one(Session, session_id, populate_existing=True)
            if session.state not in ENDABLE_SESSION or await is_whole(tx, session):
                return
            said = _said(session, await failed_first(tx, session_id))
            await end_session(ctx, tx, session_id, EndReason.SET_BROKEN, said, SYSTEM, now)
            # Every termination of the session waits for an attempt to deliver this one.
            text = f"Session {session.short_id}: {said}"
            subject = ended_by_subject(session)
            await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=subject, text=text)
    except StaleMove:
        log.info("session %s is ending already", session_id)


def _said(session: Session, failed: Instance | None) -> str:
    why = "One of them is missing." if failed is None else f"Machine {(failed.node_rank or 0) + 1}: {failed.outcome}"
    if session.dealt_commands:
        return f"None of the {session.nodes} machines that share its queue is left, so it ends. {why}"
    return f"A set of {plural(session.nodes, 'machine')} runs whole or not at all, so it ends. {why}"
