"""The state of a job: from what its agent reports, and from how its session ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from bot.rules.jobs.job import JobRequest
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.nodes.job_state import JobStatus, ended_job, job_status
from bot.wire.checkin import MachineReport, StartupStep, StepOutcome, Work
from ledger.kernel.job_state import JOB_OVER, JobState
from ledger.kernel.states import SessionState
from providers.gpus.constraint import GpuConstraint

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HEARD = NodeStatus(seq=1, at=NOW)
RUNNING = SessionState.RUNNING


def steps(**states: StepOutcome) -> MachineReport:
    """A start-up whose steps are so far; one that failed has exit code 128."""
    return MachineReport(
        steps=tuple(
            StartupStep(name, state, 1, 128 if state is StepOutcome.FAILED else None) for name, state in states.items()
        )
    )


STARTED = replace(HEARD, machine=steps(repo=StepOutcome.DONE, run=StepOutcome.DONE))


def test_only_a_command_that_was_handed_over_is_a_job() -> None:
    job = JobRequest(GpuConstraint(), Decimal(1))
    assert [job.has_command, replace(job, run="python train.py").has_command] == [False, True]


@pytest.mark.parametrize(
    ("session", "found", "state"),
    [
        (SessionState.QUEUED, None, JobState.QUEUED),
        (SessionState.PROVISIONING, None, JobState.QUEUED),
        (SessionState.QUEUED, STARTED, JobState.QUEUED),  # That machine is gone.
        (RUNNING, None, JobState.RUNNING),  # A batch cloud has no agent.
        (RUNNING, NodeStatus(), JobState.QUEUED),  # Its agent did not report yet.
        (RUNNING, HEARD, JobState.QUEUED),
        (RUNNING, replace(HEARD, step=0), JobState.RUNNING),
        (RUNNING, replace(HEARD, work=Work.SAVING), JobState.SAVING),
        (RUNNING, replace(HEARD, machine=steps(repo=StepOutcome.RUNNING, run=StepOutcome.WAITING)), JobState.QUEUED),
        (RUNNING, replace(HEARD, machine=steps(packages=StepOutcome.FAILED, run=StepOutcome.WAITING)), JobState.QUEUED),
        (RUNNING, replace(HEARD, machine=steps(run=StepOutcome.SKIPPED)), JobState.QUEUED),
        (SessionState.PROVISIONING, STARTED, JobState.RUNNING),
        (RUNNING, replace(STARTED, work=Work.QUEUED), JobState.QUEUED),
        (RUNNING, replace(STARTED, work=Work.PAUSED), JobState.RUNNING),
        (RUNNING, replace(STARTED, work=Work.DONE), JobState.SUCCEEDED),
    ],
)
def test_a_job_is_where_its_agent_says_once_its_command_started(
    session: SessionState, found: NodeStatus | None, state: JobState
) -> None:
    assert job_status(session, found) == JobStatus(state)


def test_a_failed_job_has_the_exit_code_of_its_command_or_of_the_step_that_failed() -> None:
    failed = job_status(RUNNING, replace(STARTED, work=Work.FAILED, job_exit_code=3))
    assert (failed, failed.line) == (JobStatus(JobState.FAILED, 3), "failed (exit code 3)")
    assert failed.sentence == "The job failed with exit code 3."
    stuck = job_status(RUNNING, replace(HEARD, machine=steps(repo=StepOutcome.FAILED, run=StepOutcome.SKIPPED)))
    assert stuck == JobStatus(JobState.FAILED, 128, "repo")
    assert stuck.line == "failed (its start-up failed at repo, exit code 128)"
    assert stuck.sentence == "The job did not start: repo failed with exit code 128."
    at_once = replace(HEARD, machine=steps(run=StepOutcome.FAILED), work=Work.FAILED, job_exit_code=3)
    assert job_status(RUNNING, at_once) == JobStatus(JobState.FAILED, 3)
    assert job_status(RUNNING, replace(at_once, work=Work.RUNNING)) == JobStatus(JobState.FAILED, 128, "run")
    # An exit code of an earlier report says nothing of a job that runs.
    assert job_status(RUNNING, replace(STARTED, job_exit_code=3)).exit_code is None


@pytest.mark.parametrize(
    ("end_code", "found", "state"),
    [
        ("lost", STARTED, JobState.INTERRUPTED),
        ("reservation_over", STARTED, JobState.INTERRUPTED),
        ("asked", None, JobState.INTERRUPTED),
        ("no_offer", None, JobState.INTERRUPTED),
        ("run_completed", None, JobState.SUCCEEDED),
        ("completed", STARTED, JobState.SUCCEEDED),
        ("run_timeout", None, JobState.FAILED),
        # What its agent reported last counts before the reason of the end.
        ("lost", replace(STARTED, work=Work.DONE), JobState.SUCCEEDED),
        ("reservation_over", replace(STARTED, work=Work.FAILED), JobState.FAILED),
        ("a code of an older release", STARTED, JobState.INTERRUPTED),
    ],
)
def test_the_end_of_a_session_ends_its_job(end_code: str, found: NodeStatus | None, state: JobState) -> None:
    ended = ended_job(end_code, SessionState.TERMINATING, found)
    assert (ended.state, ended.is_over) == (state, True)


def test_every_state_has_a_sentence_and_three_are_final() -> None:
    assert [state for state in JobState if JobStatus(state).is_over] == sorted(JOB_OVER, key=list(JobState).index)
    said = [JobStatus(state).sentence for state in JobState]
    assert len(set(said)) == len(said)
    assert JobStatus(JobState.INTERRUPTED).sentence == "The job was interrupted: its machine ended first."
    assert JobStatus(JobState.SUCCEEDED, 0).sentence == "The job succeeded with exit code 0."


@pytest.mark.parametrize(
    ("status", "line", "sentence"),
    [
        (JobStatus(JobState.QUEUED, attempts=3), "queued", "The job is queued in attempt 1 of 3."),
        (JobStatus(JobState.RUNNING, attempt=2, attempts=3), "running (attempt 2 of 3)", None),
        (
            JobStatus(JobState.FAILED, 75, attempt=3, attempts=3),
            "failed (exit code 75, attempt 3 of 3)",
            "The job failed with exit code 75 in attempt 3 of 3.",
        ),
    ],
)
def test_attempts_are_shown_where_there_can_be_more_than_one(
    status: JobStatus, line: str, sentence: str | None
) -> None:
    assert status.line == line
    assert sentence in (None, status.sentence)


def test_the_attempt_is_the_agents_word() -> None:
    found = replace(STARTED, job_attempt=2)
    assert job_status(RUNNING, found) == JobStatus(JobState.RUNNING, attempt=2)
