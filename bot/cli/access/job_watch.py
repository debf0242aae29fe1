"""Follow a job over the API: its states until it ended, the end of its log, and the exit code that says it all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from bot.api.schemas.requests import RequestOut
from bot.api.schemas.sessions import JobOut, SessionOut
from bot.cli.access.api_client import ENDS, ApiClient, RefusedCall
from bot.cli.terminal.screen import NO_PERMISSION, TIMED_OUT, TRY_AGAIN, UNAVAILABLE, say
from bot.cli.terminal.views import situation
from bot.cli.terminal.wording import when
from bot.rules.nodes.machine_logs import LogSource
from bot.rules.values.phrases import usd
from bot.rules.values.state_text import state_words
from ledger.kernel.clock import Clock
from ledger.kernel.ids import short_id
from ledger.kernel.job_state import JOB_OVER, JobState
from ledger.kernel.states import RequestState, SessionState

POLL_S = 2.0
#: For how long the service may be out of reach while a job is followed.
PATIENCE_S = 600.0
#: What a request that will not run ends the program with.
_CLOSED = {
    RequestState.REJECTED: NO_PERMISSION,
    RequestState.CANCELLED: NO_PERMISSION,
    RequestState.EXPIRED: TIMED_OUT,
    RequestState.UNAVAILABLE: UNAVAILABLE,
}
_HAS_MACHINE = frozenset({SessionState.RUNNING, SessionState.TERMINATING})


def following(request_id: str) -> str:
    """Say how a job is followed."""
    return f"To follow it: `gpu-shopper run --follow {short_id(request_id)}`."


def ending(request_id: str) -> str:
    """Say how a job is ended, before and after it has a machine."""
    short = short_id(request_id)
    return f"To end it: `gpu-shopper shutdown {short}`, or `gpu-shopper cancel {short}` before it is approved."


@dataclass(frozen=True, slots=True)
class FollowedJob:
    """A job that ended, or a request that will not run. `job` is None where it never had a session."""

    request: RequestOut
    session: SessionOut | None
    job: JobOut | None

    @property
    def ends_with(self) -> int:
        """Return the exit code: the job's own one, or why there is none."""
        if self.job is None:
            return _CLOSED.get(self.request.state, TRY_AGAIN)
        if self.job.state is JobState.SUCCEEDED:
            return 0
        return (self.job.exit_code or 1) if self.job.state is JobState.FAILED else TRY_AGAIN

    @property
    def sentence(self) -> str:
        """Say how it ended and what it cost."""
        short = short_id(self.request.id)
        if self.job is None or self.session is None:
            return f"Request {short} is {state_words(self.request.state)}. {self.request.outcome}".strip()
        session = self.session
        end = session.ends_early_at or session.deadline
        ends = f" so far; its session ends {when(end)}" if session.ended_at is None and end else ""
        unfinished = self.job.state in (JobState.INTERRUPTED, JobState.MOVED)
        why = f" {session.end_reason}" if unfinished and session.end_reason else ""
        return f"Job {short} {self.job.line}. It cost {usd(session.cost_usd)}{ends}.{why}"

    @property
    def document(self) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "request_id": self.request.id,
            "session_id": self.request.session_id,
            "request_state": str(self.request.state),
            "job": self.job.model_dump(mode="json") if self.job else None,
            "ends_with": self.ends_with,
            "cost_usd": str(self.session.cost_usd) if self.session else "0",
        }


@dataclass(slots=True)
class JobWatch:
    """Look at a job until it ended. Each change is one line on standard error."""

    api: ApiClient
    request_id: str
    clock: Clock
    limit_s: float | None = None
    _shown: str = ""
    _unreached_since: float | None = None

    async def until_over(self) -> FollowedJob | None:
        """Return how the job ended, or the request that will not run; None when `limit_s` has passed before."""
        since = self.clock.monotonic()
        while True:
            found = await self._look()
            if found is not None:
                return found
            if self.limit_s is not None and self.clock.monotonic() - since >= self.limit_s:
                return None
            await self.clock.sleep(POLL_S)

    async def log(self, found: FollowedJob, lines: int) -> list[str]:
        """Return the end of the job's log, or of its start-up's where that failed; none where no machine has it."""
        if found.session is None or found.job is None or found.session.state not in _HAS_MACHINE:
            return []
        source = LogSource.STARTUP if found.job.failed_step else LogSource.JOB
        try:
            answer = await self.api.get(f"/sessions/{found.session.id}/logs", source=str(source), lines=lines)
        except RefusedCall as refused:
            say(f"Its log can't be read. {refused}", stderr=True)
            return []
        return [str(line) for line in answer["lines"]]

    async def end_failed_start(self, found: FollowedJob) -> str:
        """End the session of a job that never started: nobody is there to repair its start-up."""
        if found.session is None or found.job is None or not found.job.failed_step:
            return ""
        try:
            answer = await self.api.post(f"/sessions/{found.session.id}/done", {"succeeded": False})
        except RefusedCall as refused:
            return str(refused)
        return str(answer["sentence"])

    async def _look(self) -> FollowedJob | None:
        """Look once; None while the job continues, or while the service is out of reach."""
        try:
            one = RequestOut.model_validate(await self.api.get(f"/requests/{self.request_id}"))
            session = None
            if one.session_id:
                session = SessionOut.model_validate(await self.api.get(f"/sessions/{one.session_id}"))
        except (httpx.TransportError, RefusedCall) as error:
            self._be_patient(error)
            return None
        self._unreached_since = None
        job = session.job if session else None
        self._say(
            f"job {job.line}{_start_of(session, job)}" if job and _has_machine(session) else situation(one, session)
        )
        if job is not None and job.state in JOB_OVER:
            return FollowedJob(one, session, job)
        is_closed = session is None and one.state in _CLOSED
        return FollowedJob(one, session, None) if is_closed or _is_over(session) else None

    def _be_patient(self, error: httpx.TransportError | RefusedCall) -> None:
        """Go on for a while when the service does not answer; raises the error of one that does not pass."""
        if isinstance(error, RefusedCall) and ENDS.get(error.status) != UNAVAILABLE:
            raise error
        now = self.clock.monotonic()
        if self._unreached_since is None:
            self._unreached_since = now
        if now - self._unreached_since > PATIENCE_S:
            raise error
        self._say("GPU Shopper can't be reached. The job continues, and this tries again.")

    def _say(self, now: str) -> None:
        if now != self._shown:
            say(now, stderr=True)
            self._shown = now


def _has_machine(session: SessionOut | None) -> bool:
    return session is not None and session.state not in (SessionState.QUEUED, SessionState.PROVISIONING)


def _is_over(session: SessionOut | None) -> bool:
    return session is not None and session.state in (SessionState.TERMINATED, SessionState.FAILED)


def _start_of(session: SessionOut | None, job: JobOut) -> str:
    """Say how far the start-up is, while the job waits for it."""
    startup = session.agent.startup if session is not None and session.agent is not None else ""
    return f". {startup}" if startup and job.state is JobState.QUEUED else ""
