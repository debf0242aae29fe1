"""Carry out what somebody chose for a machine in grace: wait, replace it and keep its disk, or give it up."""

from __future__ import annotations

from datetime import datetime

from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.instances import grace
from bot.services.instances.termination import end_session
from bot.services.instances.transitions import end_instance
from bot.services.notifications.interruption import notify_interruption
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import AnswerGrace, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Tx, record
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.steps.grace import GraceChoice, GraceOutcome
from ledger.models import GraceRow, Instance, Session
from ledger.queries.journal import done_before
from ledger.queries.runs.graces import change_grace, graces_of_sessions
from ledger.queries.runs.relocations import waiting_target

_REFUSED = (
    "That request has no session with a machine in grace.",
    "Only its owner, a fallback contact or an approver can decide about this machine.",
)
_DONE = {
    GraceChoice.WAIT: ReplyCode.WAITS,
    GraceChoice.REPLACE: ReplyCode.REPLACES,
    GraceChoice.GIVE_UP: ReplyCode.TERMINATING,
}
NOT_COVERED = (
    "The approval doesn't cover a replacement: no replacement or no amount is left, or no other offer fits. "
    "The machine stays in grace. To replace it, request another machine."
)


async def answer(ctx: Context, command: AnswerGrace) -> Reply:
    """Carry out a choice. Codes of success: `waits`, `replaces`, `terminating`."""
    doubt = clock_problem(ctx.clock)
    if doubt and command.choice is GraceChoice.REPLACE:  # It spends.
        return refuse(ReplyCode.CLOCK_WRONG, f"Nothing is replaced while the clock is wrong: {doubt}.")

    async def choose(tx: Tx, session: Session, now: datetime) -> Reply:
        data = {"session_id": session.id}
        done = await done_before(tx, session.id, {EventKind.SESSION_GRACE_CHOICE}, command.key, now - KEPT)
        if done is not None:  # The process ended before it could reply.
            return Reply(True, _DONE[command.choice], done.reason, data)
        in_grace = (await graces_of_sessions(tx, [session.id])).get(session.id)
        seen = command.seen_since_s
        if in_grace is None or (seen is not None and seen != int(in_grace.since.timestamp())):
            return refuse(ReplyCode.STALE, "This session has no machine in grace now. Nothing was changed.", data)
        row = await tx.get_one(Instance, in_grace.instance_id, populate_existing=True)
        if command.choice is GraceChoice.REPLACE:
            return await _replace(ctx, tx, in_grace, row, session, command, now)
        if command.choice is GraceChoice.GIVE_UP:
            return await _give_up(ctx, tx, in_grace, row, session, command, now)
        said = f"Session {session.short_id} waits for its machine until {in_grace.until:%Y-%m-%d %H:%M} UTC."
        return await _chosen(ctx, tx, in_grace, row, command, said, now)

    reply = await authorization.acted(ctx, command.session, command.decider, _REFUSED, choose)
    if reply.ok:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return reply


async def _chosen(
    ctx: Context, tx: Tx, in_grace: GraceRow, row: Instance, command: AnswerGrace, said: str, now: datetime
) -> Reply:
    """Record a choice with its reply, and show the message about the machine anew."""
    actor, session_id = command.decider.actor, in_grace.session_id
    await change_grace(tx, in_grace.id, choice=command.choice, chosen_by=actor.ref)
    data = {"choice": str(command.choice), "instance_id": row.id}
    record(tx, now, actor, session_id, EventKind.SESSION_GRACE_CHOICE, reason=said, key=command.key, data=data)
    await notify_interruption(tx, ctx.policy, row, now)
    return Reply(True, _DONE[command.choice], said, {"session_id": session_id})


async def _replace(
    ctx: Context, tx: Tx, in_grace: GraceRow, row: Instance, session: Session, command: AnswerGrace, now: datetime
) -> Reply:
    data = {"session_id": session.id}
    if in_grace.replaced:
        return refuse(ReplyCode.STALE, "The replacement is launched already. The first machine's disk stays.", data)
    plight = await grace.plight_of(ctx, tx, in_grace, row, session, now)
    if not plight.can_replace or not await grace.replace(ctx, tx, in_grace, row, session, now):
        return refuse(ReplyCode.NO_REPLACEMENT, NOT_COVERED, data)
    until = f"{in_grace.until:%Y-%m-%d %H:%M} UTC"
    said = f"Session {session.short_id} gets a replacement. The disk of its first machine stays until {until}."
    return await _chosen(ctx, tx, in_grace, row, command, said, now)


async def _give_up(
    ctx: Context, tx: Tx, in_grace: GraceRow, row: Instance, session: Session, command: AnswerGrace, now: datetime
) -> Reply:
    """End the machine that waits, or the whole session where it has no other one.

    A run that is being moved is not ended with it: its target takes over.
    """
    actor = command.decider.actor
    said, code = f"Session {session.short_id} is ending.", EndReason.ASKED
    if (target := await waiting_target(tx, session.id)) is not None:
        there = short_id(target.request_id)
        continues = f"Its run continues as {there}, from its last verified save."
        said = f"Session {session.short_id} ends, and its disk is deleted. {continues}"
        code = EndReason.GIVEN_UP
    if in_grace.replaced:
        first = f"The first machine of session {session.short_id} ends, and its disk is deleted."
        said = f"{first} The replacement continues."
    reply = await _chosen(ctx, tx, in_grace, row, command, said, now)
    await grace.close(ctx, tx, in_grace, row, GraceOutcome.GIVEN_UP, now)
    if in_grace.replaced:
        await end_instance(tx, row, EndReason.ASKED, f"{actor.ref} gave the machine up.", now, actor)
        return reply
    await end_session(ctx, tx, session.id, code, f"{actor.ref} gave the machine up.", actor, now)
    return reply
