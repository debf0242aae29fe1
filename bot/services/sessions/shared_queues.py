"""End the machines that share a queue, each when no command is left for it, and their session with the last result.

A machine that is silent is ended, too. Its commands are dealt again once it is proved gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.rules.jobs.stored import job_of
from bot.rules.nodes.checkins import EarlyEnd, grace_s, listener_problem
from bot.rules.nodes.job_state import JobStatus, job_status
from bot.services.instances.transitions import end_announced
from bot.services.nodes.checkins import node_status
from bot.services.nodes.queue_dealing import dealt
from bot.services.notifications.job_ended import record_job
from bot.services.notifications.paging import alone
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from bot.services.sessions.idle_termination import GAP_S, apply_early_end
from bot.wire.checkin import QueueCounts
from ledger.core import Tx, lock_family
from ledger.kernel.end_reason import EndReason, Grace
from ledger.kernel.job_state import JobState
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, Node, Request, Session
from ledger.queries.jobs.command_claims import SharedQueue, shared_queues, sharing_sessions
from ledger.queries.lookups import open_instances_of_session
from ledger.queries.nodes import listening_since, nodes_of, reporting

LOOK_S = 10.0
#: The mark that says since when this check runs without a pause.
LISTENING = "queues/listening"
#: A machine reports every 15 seconds. The others wait for the commands of one that did not for so long.
RELIED = timedelta(minutes=2)
NOTHING_LEFT = "No command of its queue is left for it."
NO_STARTUP = "Its start-up failed, so it runs no command of its queue."


@dataclass(frozen=True, slots=True)
class _Look:
    """Hold what one look at all of them knows: since when check-ins arrive, and whether something keeps them away."""

    listening_at: datetime
    is_deaf: bool
    now: datetime


async def shared_queues_due(ctx: Context) -> int:
    """Look at each session whose machines share a queue; return how many were ended, or lost a machine."""
    if clock_problem(ctx.clock):
        return 0
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        found = await sharing_sessions(tx)
        if not found or await recovery_mode.is_on(tx):
            return 0
        silent_before = now - timedelta(seconds=ctx.policy.unresponsive_s)
        is_deaf = bool(listener_problem(*await reporting(tx, silent_before)))
    async with ctx.db.write() as tx:
        look = _Look(await listening_since(tx, LISTENING, GAP_S, now), is_deaf, now)
    changed = 0
    for session_id in found:
        changed += await alone(ctx, session_id, "the check of its queue", _one(ctx, session_id, look), 0)
    if changed:
        for hint in (ctx.hints.instances, ctx.hints.outbox):
            hint.set()
    return changed


async def _one(ctx: Context, session_id: str, look: _Look) -> int:
    async with ctx.db.write() as tx:
        await lock_family(tx, Session, session_id)
        session = await tx.get_one(Session, session_id, populate_existing=True)
        if session.state is not SessionState.RUNNING:
            return 0
        queue = (await shared_queues(tx, [session_id]))[session_id]
        if len(queue.failed) >= len(job_of(queue.job).queue):
            return await _over(ctx, tx, session, queue, look.now)
        rows = await open_instances_of_session(tx, session_id)
        nodes = await nodes_of(tx, [row.id for row in rows])
        silent = {row.id: said for row in rows if (said := _silent(ctx, row, nodes.get(row.id), look))}
        relied = {key for key, one in nodes.items() if one.at is not None and look.now - one.at < RELIED}
        working = queue.live & relied
        ended = 0
        for row in (one for one in rows if one.state is InstanceState.LIVE):
            if row.id in silent:
                await end_announced(ctx, tx, row, EndReason.NO_HEARTBEAT, silent[row.id], look.now)
            elif _has_failed(session, nodes.get(row.id)):
                await end_announced(ctx, tx, row, EndReason.WORK_FAILED, NO_STARTUP, look.now)
            elif dealt(queue).is_idle(row.id, working):
                await end_announced(ctx, tx, row, EndReason.COMPLETED, NOTHING_LEFT, look.now)
            else:
                continue
            ended += 1
        return ended


async def _over(ctx: Context, tx: Tx, session: Session, queue: SharedQueue, now: datetime) -> int:
    """Record how the queue ended, and end its session after the time that every session has whose job ended."""
    failed = sum(queue.failed.values())
    if session.job_state is None:
        counts = QueueCounts(done=len(queue.failed) - failed, failed=failed)
        state = JobState.FAILED if failed else JobState.SUCCEEDED
        request = await tx.get_one(Request, session.request_id)
        await record_job(tx, session, request, JobStatus(state, int(failed > 0), queue=counts), now)
    code = EndReason.WORK_FAILED if failed else EndReason.COMPLETED
    said = "A command of its queue ended with an error." if failed else "Its queue is done."
    since = session.job_ended_at or now
    found: EarlyEnd | None = EarlyEnd(code, since, said, grace_s(ctx.policy, code.grace))
    if session.kept_running_until is not None and now < session.kept_running_until:
        found = None
    await apply_early_end(ctx, tx, session, found, now)
    return 1


def _has_failed(session: Session, node: Node | None) -> bool:
    """Whether the work of a machine has ended: GPU Shopper ends a queue, so only its start-up can have failed."""
    return node is not None and job_status(session.state, node_status(node)).is_over


def _silent(ctx: Context, row: Instance, node: Node | None, look: _Look) -> str:
    """Return why a machine counts as lost that its agent is silent on; "" while it does not."""
    if look.is_deaf or not ctx.policy.end_when_unresponsive or node is None or node.at is None:
        return ""
    if row.reachable_at is None:
        return ""  # Its boot has a longest time of its own.
    after_s = ctx.policy.unresponsive_s + grace_s(ctx.policy, Grace.SILENT)
    if look.now - max(node.at, row.reachable_at, look.listening_at) < timedelta(seconds=after_s):
        return ""
    return f"Its agent last reported at {node.at:%H:%M} UTC. It should report every minute."
