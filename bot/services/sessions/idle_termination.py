"""End sessions early when their agent reports them unresponsive, idle, or done with their job.

The owner is notified first, with what can be done about it. The end is ordered when its time comes, whether or not the
notification was delivered, and dropped as soon as its reason is gone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.rules.jobs.facets.idle import LEAST_S
from bot.rules.jobs.stored import job_of
from bot.rules.nodes.checkins import EarlyEnd, Watched, early_end, listener_problem
from bot.rules.relocation.asks import idles_on_purpose
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.instances import grace
from bot.services.instances.termination import end_session
from bot.services.nodes.checkins import node_status
from bot.services.nodes.job_results import is_job_running, record_ended_work
from bot.services.notifications import end_of_session
from bot.services.notifications.interruption import notify_interruption
from bot.services.notifications.paging import alone, page
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import KeepRunning, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.liveness import LISTENING
from bot.services.sessions.expiration import SCHEDULER
from ledger.core import Tx, amend, lock_family, record
from ledger.kernel.actor import Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import SessionState
from ledger.models import Instance, Request, Session
from ledger.queries.nodes import Suspect, listening_since, node_of, reporting, suspects
from ledger.queries.runs.graces import open_grace
from ledger.queries.runs.relocations import open_migration_of

#: A pause between two checks longer than this means that no service received heartbeats meanwhile.
GAP_S = 150.0
#: The time that the button *Keep 1 h* gives.
SPARED = timedelta(hours=1)


async def idle_terminations_due(ctx: Context) -> int:
    """Announce, order or drop early ends by what the agents report; return how many sessions were checked."""
    if clock_problem(ctx.clock):
        return 0
    now, policy = ctx.clock.now(), ctx.policy
    silent_before = now - timedelta(seconds=policy.unresponsive_s)
    async with ctx.db.write() as tx:
        listening_at = await listening_since(tx, LISTENING, GAP_S, now)
    async with ctx.db.read() as tx:
        found = await suspects(tx, silent_before, now - timedelta(seconds=min(LEAST_S, *policy.idle_s.values())))
        if not found or await recovery_mode.is_on(tx):
            return 0
        problem = listener_problem(*await reporting(tx, silent_before))
    if problem:
        await page(ctx, "nodes/deaf", problem)
    for one in found:
        step = _check(ctx, one, listening_at, is_deaf=bool(problem), now=now)
        await alone(ctx, one.session_id, "the check of its agent", step, None)
    ctx.hints.outbox.set()
    ctx.hints.instances.set()
    return len(found)


async def _check(ctx: Context, suspect: Suspect, listening_at: datetime, *, is_deaf: bool, now: datetime) -> None:
    silence = await _about_silence(ctx, suspect, now)
    async with ctx.db.write() as tx:
        await lock_family(tx, Session, suspect.session_id)
        session = await tx.get_one(Session, suspect.session_id, populate_existing=True)
        node = await node_of(tx, suspect.instance_id)
        if session.state is not SessionState.RUNNING or session.deadline is None or node is None:
            return
        request = await tx.get_one(Request, session.request_id)
        ready_at = session.ready_at or session.created_at
        reported = node_status(node)
        await record_ended_work(tx, session, request, reported, now)
        watched = Watched(
            job_of(request.job).workload,
            ready_at,
            listening_at,
            session.kept_running_until,
            session.job_ended_at,
            has_running_job=is_job_running(session, request, reported),
            idle_s=job_of(request.job).idle_s,
        )
        found = early_end(ctx.policy, reported, watched, now)
        if (
            found is not None
            and found.code is EndReason.NO_HEARTBEAT
            and (is_deaf or await _is_kept_although_silent(ctx, tx, suspect, session, silence, now))
        ):
            found = None
        if found is not None and found.code is EndReason.IDLE and await _is_moving(tx, session.id):
            found = None
        await apply_early_end(ctx, tx, session, found, now)


async def _about_silence(ctx: Context, suspect: Suspect, now: datetime) -> grace.LossFacts | None:
    """Return what decides about a silent machine; None where its agent reports, or its SSH port answers."""
    async with ctx.db.read() as tx:
        row, node = await tx.get_one(Instance, suspect.instance_id), await node_of(tx, suspect.instance_id)
    silent = node is not None and node.at is not None and now - node.at >= timedelta(seconds=ctx.policy.unresponsive_s)
    if not silent or await grace.ssh_answers(ctx, row):
        return None
    return await grace.facts_of(ctx, row, now)


async def _is_kept_although_silent(
    ctx: Context, tx: Tx, suspect: Suspect, session: Session, silence: grace.LossFacts | None, now: datetime
) -> bool:
    """Whether a silent machine is kept: its cloud has it and its SSH port answers, or it is in grace."""
    row = await tx.get_one(Instance, suspect.instance_id, populate_existing=True)
    if silence is None or row.trouble_at is not None or await open_grace(tx, row.id) is not None:
        return True
    not_kept = await grace.enter(ctx, tx, row, grace.SILENT, silence, now)
    if not_kept is not None:
        if session.early_end_code != EndReason.NO_HEARTBEAT:
            grace.note_not_kept(tx, row, not_kept, now)
        return False
    await notify_interruption(tx, ctx.policy, row, now)
    return True


async def apply_early_end(ctx: Context, tx: Tx, session: Session, found: EarlyEnd | None, now: datetime) -> None:
    """Announce an early end whose reason lasts, order it when its time has come, or drop it with its reason."""
    if session.early_end_at is not None and (found is None or found.code != session.early_end_code):
        await _drop(tx, session, SCHEDULER, "The reason no longer applies.", now)
    if found is not None:
        await _announce_or_end(ctx, tx, session, found, now)


async def _is_moving(tx: Tx, session_id: str) -> bool:
    """Whether a session is idle because its run is being moved, whose steps have longest times of their own."""
    moving = await open_migration_of(tx, session_id)
    return moving is not None and idles_on_purpose(moving.step)


async def _announce_or_end(ctx: Context, tx: Tx, session: Session, found: EarlyEnd, now: datetime) -> None:
    """Announce an early end whose reason lasts, or end the session when its time has come."""
    if session.early_end_at is None:
        early_end_at = now + timedelta(seconds=found.grace_s)
        if session.deadline is None or early_end_at >= session.deadline:
            return  # Its approved end comes first, and is announced by itself.
        await amend(
            tx,
            Session,
            session.id,
            early_end_at=early_end_at,
            early_end_code=found.code,
            early_end_reason=found.sentence,
        )
        said = f"{found.sentence} Unless that changes, the session ends at {early_end_at:%H:%M} UTC."
        record(tx, now, SCHEDULER, session.id, EventKind.SESSION_CUT, reason=said)
        await tx.refresh(session)
        await end_of_session.announce_early_end(ctx, tx, session, now)
    elif now >= session.early_end_at:
        await end_session(ctx, tx, session.id, found.code, session.early_end_reason or found.sentence, SCHEDULER, now)
    else:
        await end_of_session.announce_early_end(ctx, tx, session, now)


async def _drop(
    tx: Tx, session: Session, actor: Actor, why: str, now: datetime, *, kept_running_until: datetime | None = None
) -> None:
    """Drop an announced early end, and update the messages about it."""
    await end_of_session.refresh(tx, session, now)
    kept_running_until = kept_running_until or session.kept_running_until
    await amend(
        tx,
        Session,
        session.id,
        early_end_at=None,
        early_end_code=None,
        early_end_reason=None,
        kept_running_until=kept_running_until,
    )
    record(tx, now, actor, session.id, EventKind.SESSION_UNCUT, reason=why)
    await tx.refresh(session)


_REFUSED = (
    "That request has no session to keep running.",
    "Only its owner, a fallback contact or an approver can keep this session running.",
)


async def keep_running(ctx: Context, command: KeepRunning) -> Reply:
    """Keep a session running for an hour that its agent reports as not needed. Its approved end stays."""

    async def keep(tx: Tx, session: Session, now: datetime) -> Reply:
        data = {"session_id": session.id}
        if session.early_end_at is None or not end_of_session.same_end(session, command.seen_end_s):
            return refuse(ReplyCode.STALE, "The session no longer ends early, so nothing was changed.", data)
        until = now + SPARED
        await _drop(
            tx,
            session,
            command.decider.actor,
            f"{command.decider.actor.ref} keeps it running.",
            now,
            kept_running_until=until,
        )
        ends = f" Its approved end is still {session.deadline:%H:%M} UTC." if session.deadline else ""
        sentence = f"Session {session.short_id} keeps running until {until:%H:%M} UTC, even if idle.{ends}"
        return Reply(True, ReplyCode.KEPT_RUNNING, sentence, data)

    reply = await authorization.acted(ctx, command.session, command.decider, _REFUSED, keep)
    if reply.ok:
        ctx.hints.outbox.set()
    return reply
