"""Record how the job of a session ended, once, and show its card again."""

from __future__ import annotations

from datetime import datetime

from bot.rules.jobs.stored import job_of
from bot.rules.nodes.job_state import JobStatus, detailed, ended_job
from bot.services.notifications.request_message import show_again
from ledger.core import Tx, amend, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.models import Request, Session


async def record_job(tx: Tx, session: Session, request: Request, status: JobStatus, now: datetime) -> None:
    """Record the result of a job. The session keeps it after its machine is gone, and the audit log has it once."""
    await amend(tx, Session, session.id, job_state=status.state, job_exit_code=status.exit_code, job_ended_at=now)
    data, said = {"exit_code": status.exit_code}, status.sentence
    if status.attempts > 1:
        data["attempt"] = status.attempt
    record(tx, now, SYSTEM, session.id, EventKind.JOB_ENDED, after=status.state, reason=said, data=data)
    await tx.refresh(session)
    await show_again(tx, request, now)


async def record_waiting_job(tx: Tx, session: Session, end_code: str, now: datetime) -> None:
    """Record the result of a job whose session ends while it waits for a machine."""
    request = await tx.get_one(Request, session.request_id)
    if session.job_state is None and job_of(request.job).has_command:
        status = detailed(ended_job(end_code, session.state, None), job_of(request.job), None)
        await record_job(tx, session, request, status, now)
