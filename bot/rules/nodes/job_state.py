"""Judge how far the job of a session is, by what its agent reports and by how the session ended.

A job is the `run=` command that somebody handed over. A result that was recorded stays, whatever is reported later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from bot.rules.nodes.checkins import NodeStatus
from bot.rules.nodes.machine_report import RUN
from bot.rules.nodes.reported_commands import queue_words
from bot.wire.checkin import QueueCounts, StartupStep, StepOutcome, Work
from ledger.kernel.end_reason import WENT_WELL, WENT_WRONG, EndReason
from ledger.kernel.job_state import JOB_OVER, JobState
from ledger.kernel.states import SessionState

#: What an agent says of its job → the job's state. A paused one keeps its place, and continues later.
_OF_WORK = {
    Work.QUEUED: JobState.QUEUED,
    Work.RUNNING: JobState.RUNNING,
    Work.SAVING: JobState.SAVING,
    Work.PAUSED: JobState.RUNNING,
    Work.DONE: JobState.SUCCEEDED,
    Work.FAILED: JobState.FAILED,
}
_PENDING_STEP = frozenset({StepOutcome.WAITING, StepOutcome.RUNNING})


class Command(Protocol):
    """What a job says of its command."""

    @property
    def queue(self) -> tuple[str, ...]: ...

    @property
    def attempts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Say how far a job is. `exit_code` is None until its command ended, and where nobody reported it.

    `failed_step` is the step of the start-up that failed, so that the command never started. `attempt` is the number
    of its attempt where a failed command is started again, which is done `attempts` times at most.
    """

    state: JobState
    exit_code: int | None = None
    failed_step: str = ""
    attempt: int = 1
    attempts: int = 1
    #: How far its queue is; None where it has none.
    queue: QueueCounts | None = None

    @property
    def is_over(self) -> bool:
        """Whether the job will not continue."""
        return self.state in JOB_OVER

    @property
    def line(self) -> str:
        """Say it in a few words: `failed (exit code 3)`."""
        if self.failed_step:
            return f"{self.state} (its start-up failed at {self.failed_step}, exit code {self.exit_code})"
        said = [f"exit code {self.exit_code}"] if self.exit_code is not None else []
        if self.queue is not None:
            return f"{self.state} ({queue_words(self.queue)})"
        if self.attempts > 1 and self.state is not JobState.QUEUED:
            said.append(f"attempt {self.attempt} of {self.attempts}")
        return f"{self.state} ({', '.join(said)})" if said else str(self.state)

    @property
    def sentence(self) -> str:
        """Say how it ended, for the audit log and for people."""
        if self.failed_step:
            return f"The job did not start: {self.failed_step} failed with exit code {self.exit_code}."
        said = {
            JobState.SUCCEEDED: "The job succeeded",
            JobState.FAILED: "The job failed",
            JobState.MOVED: "The job moved to another machine",
            JobState.INTERRUPTED: "The job was interrupted: its machine ended first",
        }.get(self.state, f"The job is {self.state}")
        if self.queue is not None:
            return f"{said}, {queue_words(self.queue)}."
        said += f" with exit code {self.exit_code}" if self.exit_code is not None else ""
        return f"{said} in attempt {self.attempt} of {self.attempts}." if self.attempts > 1 else f"{said}."


def job_status(session: SessionState, found: NodeStatus | None) -> JobStatus:
    """Say how far a job is while its session lasts. `found` is what the newest machine's agent reported, if it has one.

    A batch cloud has no agent: there the machine runs the command from its start on.
    """
    if session is SessionState.QUEUED:  # What is known is of a machine that is gone.
        return JobStatus(JobState.QUEUED)
    if found is None:
        return JobStatus(JobState.QUEUED if session is SessionState.PROVISIONING else JobState.RUNNING)
    if found.at is None:
        return JobStatus(JobState.QUEUED)
    steps = found.machine.steps if found.machine is not None else ()
    run = next((one for one in steps if one.name == RUN), None)
    if run is None:
        # An agent that starts the command itself reports a step, or another word than the first one.
        begun = found.work is not Work.RUNNING or found.step is not None
        return _by_work(found) if begun else JobStatus(JobState.QUEUED)
    # A command that ends with an error at once is a step that failed, too.
    ended_at_once = run.state is StepOutcome.FAILED and found.work.is_over
    return _by_work(found) if ended_at_once or run.state is StepOutcome.DONE else _starting(run, steps)


def detailed(status: JobStatus, job: Command, found: NodeStatus | None) -> JobStatus:
    """Add what its job says: how often its command is started at most, and how far its queue is."""
    queue = found.queue if found is not None and job.queue else None
    return replace(status, attempts=job.attempts if not job.queue else 1, queue=queue)


def ended_job(end_code: str, session: SessionState, found: NodeStatus | None) -> JobStatus:
    """Say how a job ended whose session has ended, with the reason `end_code`."""
    last = job_status(session, found)
    if last.is_over:
        return last
    if end_code in (EndReason.MIGRATED, EndReason.GIVEN_UP):
        return JobStatus(JobState.MOVED)
    if end_code in WENT_WELL:
        return JobStatus(JobState.SUCCEEDED)
    return JobStatus(JobState.FAILED if end_code in WENT_WRONG else JobState.INTERRUPTED)


def _by_work(found: NodeStatus) -> JobStatus:
    code = found.job_exit_code if found.work.is_over else None
    return JobStatus(_OF_WORK[found.work], code, attempt=found.job_attempt)


def _starting(run: StartupStep, steps: tuple[StartupStep, ...]) -> JobStatus:
    """Say how far the start-up is: the job waits for it, or fails with the step that failed."""
    failed = next((one for one in steps if one.state is StepOutcome.FAILED), None)
    if failed is None or run.state in _PENDING_STEP:
        return JobStatus(JobState.QUEUED)
    return JobStatus(JobState.FAILED, failed.exit_code, failed.name)
