"""Say how far the job of a session is, and record its result when its command or its session ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bot.rules.jobs.stored import job_of
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.nodes.job_state import JobStatus, detailed, ended_job, job_status
from bot.services.nodes.checkins import node_status
from bot.services.notifications.job_ended import record_job
from bot.wire.checkin import QueueCounts
from ledger.core import Tx
from ledger.kernel.job_state import JobState
from ledger.kernel.states import SessionState
from ledger.models import Request, Session
from ledger.queries.jobs.command_claims import ended_counts
from ledger.queries.lookups import instances_of_session
from ledger.queries.nodes import node_of
from ledger.queries.views import SessionView


def job_status_of(view: SessionView) -> JobStatus | None:
    """Return how far the job of a session is: its recorded result, or what is known now; None where it has no job."""
    if not job_of(view.request.job).has_command:
        return None
    found = node_status(view.node) if view.node is not None else None
    if view.session.dealt_commands:
        return _of_shared(view.session, *view.ended_commands)
    if view.session.job_state is not None:
        attempt = found.job_attempt if found is not None else 1
        status = JobStatus(view.session.job_state, view.session.job_exit_code, attempt=attempt)
    else:
        status = job_status(view.session.state, found)
    return detailed(status, job_of(view.request.job), found)


def shared_counts(session: Session, done: int, failed: int) -> QueueCounts:
    """Return how far a queue is that several machines share."""
    return QueueCounts(waiting=session.dealt_commands - done - failed, done=done, failed=failed)


def _of_shared(session: Session, done: int, failed: int) -> JobStatus:
    """Say how far a job is whose queue several machines share: by its results, whichever machine they came from."""
    begun = session.state is SessionState.RUNNING or done + failed > 0
    state = session.job_state or (JobState.RUNNING if begun else JobState.QUEUED)
    return JobStatus(state, session.job_exit_code, queue=shared_counts(session, done, failed))


async def record_ended_work(tx: Tx, session: Session, request: Request, found: NodeStatus, now: datetime) -> None:
    """Record the result of a job whose command ended, as its agent reports. A start-up that failed may run again."""
    if session.job_state is not None or not job_of(request.job).has_command:
        return
    status = job_status(session.state, found)
    if status.is_over and not status.failed_step:
        await record_job(tx, session, request, detailed(status, job_of(request.job), found), now)


async def record_ended_session(tx: Tx, session: Session, end_code: str, now: datetime) -> None:
    """Record the result of a job with the end of its session, unless its command ended before."""
    request = await tx.get_one(Request, session.request_id)
    if session.job_state is not None or not job_of(request.job).has_command:
        return
    if session.dealt_commands:
        ended = (await ended_counts(tx, [session.id])).get(session.id, (0, 0))
        said = replace(ended_job(end_code, session.state, None), queue=shared_counts(session, *ended))
        await record_job(tx, session, request, said, now)
        return
    found = await _reported(tx, session)
    status = detailed(ended_job(end_code, session.state, found), job_of(request.job), found)
    await record_job(tx, session, request, status, now)


def is_job_running(session: Session, request: Request, found: NodeStatus) -> bool:
    """Whether the session has a command that has not exited; a start-up that failed leaves nothing to wait for."""
    if session.job_state is not None or not job_of(request.job).has_command:
        return False
    return not job_status(session.state, found).is_over


async def is_job_over(tx: Tx, session: Session) -> bool:
    """Whether the command of a session's job ended, so that a machine that is lost needs no replacement."""
    request = await tx.get_one(Request, session.request_id)
    if session.job_state is not None or not job_of(request.job).has_command:
        return session.job_state is not None
    status = job_status(session.state, await _reported(tx, session))
    return status.is_over and not status.failed_step


async def _reported(tx: Tx, session: Session) -> NodeStatus | None:
    """Return what the agent on the newest machine reported, on the first of a set; None where it has none."""
    rows = await instances_of_session(tx, session.id)
    first = next((row for row in reversed(rows) if not row.node_rank), None)
    node = await node_of(tx, first.id) if first is not None else None
    return node_status(node) if node is not None else None
