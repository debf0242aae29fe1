"""Decide the next step of a migration from what is known of both machines, the request and the store.

The order keeps three promises: a verified copy exists at every moment, two machines never train on one store, and two
machines are paid only as long as a step needs. Every step has a longest time, after which the migration fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.checkpoints.verification import Newest
from bot.rules.nodes.checkins import NodeStatus, Work
from bot.rules.nodes.job_state import RUN
from bot.rules.nodes.machine_report import StartupStep, StepOutcome
from bot.rules.nodes.resume_steps import CHECKPOINT_STEP
from bot.rules.values.phrases import hours, plural
from ledger.kernel.end_reason import WENT_WELL, WENT_WRONG, EndGroup, reasons
from ledger.kernel.states import ENDED_SESSION, RequestState, SessionState
from ledger.kernel.steps.migration_step import TARGET_MAY_RUN, MigrationStep

_M, _S, _R = MigrationStep, SessionState, RequestState

#: The longest time of each step in seconds, counted from the step before; the rest has no end of its own.
LIMITS_S: Final[Mapping[MigrationStep, int]] = {
    _M.PROVISIONED: 5400,
    _M.READY: 1200,
    _M.VERIFIED: 2700,
    _M.PRESENT: 900,
    _M.STARTED: 2700,
}
#: What did not happen in time.
_LATE: Final[Mapping[MigrationStep, str]] = {
    _M.PROVISIONED: "the new machine was not ready",
    _M.READY: "no new save was verified at its store",
    _M.VERIFIED: "the save was not on the new machine",
    _M.PRESENT: "the run did not start on the new machine",
    _M.STARTED: "the run did not get past its save on the new machine",
}
#: Clocks of a store and of this service differ by less.
SKEW: Final = timedelta(minutes=1)
#: Ends of the source after which nothing is left to move: somebody ended it, or its job ended.
_MEANT: Final = reasons(EndGroup.ORDERED) | WENT_WELL | WENT_WRONG
_CLOSED: Final = frozenset({_R.REJECTED, _R.CANCELLED, _R.EXPIRED, _R.UNAVAILABLE})
_PENDING: Final = frozenset({StepOutcome.WAITING, StepOutcome.RUNNING})
#: A job that reports one of these writes checkpoints.
TRAINS: Final = frozenset({Work.RUNNING, Work.SAVING})


@dataclass(frozen=True, slots=True)
class Machine:
    """Describe one of the two sessions: its state, why it ends, whether a cloud has its machine, and its agent."""

    state: SessionState
    end_code: str = ""
    is_live: bool = False
    is_ready: bool = False
    agent: NodeStatus | None = None

    @property
    def is_over(self) -> bool:
        """Whether its machine is proved gone and no other one comes."""
        return self.state in ENDED_SESSION

    @property
    def work(self) -> Work | None:
        """What its agent reported of its job; None before its first report."""
        return self.agent.work if self.agent is not None and self.agent.at is not None else None

    def step(self, name: str) -> StartupStep | None:
        """Return a step of its start-up by its name."""
        return next((one for one in self.steps if one.name == name), None)

    @property
    def steps(self) -> tuple[StartupStep, ...]:
        """Return the steps of its start-up, as far as its agent reported them."""
        return self.agent.machine.steps if self.agent is not None and self.agent.machine is not None else ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold what a decision is made on. `remote` is the newest file at the store; None: none, or not looked for.

    `remote_problem` says why the store could not be read or its newest file does not count.
    """

    step: MigrationStep
    step_at: datetime
    saved_step: int | None
    request: RequestState
    request_outcome: str
    source: Machine
    target: Machine | None
    remote: Newest | None = None
    remote_problem: str = ""


@dataclass(frozen=True, slots=True)
class NextStep:
    """Say what follows: another step, or without `to` what it waits for. `save` is newly verified."""

    to: MigrationStep | None
    why: str
    save: Newest | None = None


def looks_at_store(step: MigrationStep, source: Machine) -> bool:
    """Whether the next decision needs the newest file of the store."""
    lost = source.is_over and step in (_M.PROVISIONED, _M.READY)
    return lost or (step is _M.READY and source.work is Work.PAUSED)


def next_step(facts: Facts, now: datetime) -> NextStep:
    """Decide the next step of an open migration."""
    if facts.step is _M.CHECKED:
        return _checked(facts)
    if facts.step is _M.ENDING:
        over = facts.target is None or facts.target.is_over
        return NextStep(_M.FAILED if over else None, "")  # Its note still says why it failed.
    if facts.step is _M.ADVANCED:
        over = facts.source.is_over
        return NextStep(_M.DESTROYED if over else None, "The old machine is gone." if over else "It is being ended.")
    if facts.step is _M.DESTROYED:
        return NextStep(_M.DONE, "The move is done.")
    if (problem := _problem(facts)) is not None:
        return problem
    found = _BY_STEP[facts.step](facts)
    late = timedelta(seconds=LIMITS_S[facts.step])
    if found.to is None and now - facts.step_at > late:
        spent = hours(Decimal(LIMITS_S[facts.step]) / 3600)
        return _fail(facts, f"After {spent}, {_LATE[facts.step]}: {_lower(found.why)}")
    return found


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _fail(facts: Facts, why: str) -> NextStep:
    """Fail: the target is ended, unless it is all that is left of the run."""
    alone = facts.step in TARGET_MAY_RUN and facts.source.is_over
    return NextStep(_M.FAILED if alone else _M.ENDING, why)


def _checked(facts: Facts) -> NextStep:
    if facts.source.state is not _S.RUNNING:
        return _fail(facts, "The run's own machine stopped running before the move began.")
    if facts.source.work is not None and facts.source.work.is_over:
        return _fail(facts, "The job ended before the move began.")
    if facts.request in _CLOSED:
        said = f" {facts.request_outcome}" if facts.request_outcome else ""
        return _fail(facts, f"The request for the new machine is {facts.request}.{said}")
    if facts.target is not None and (facts.target.is_over or facts.target.state is _S.TERMINATING):
        return _fail(facts, "The new machine ended before it was used.")
    if facts.target is not None and facts.target.is_live:
        return NextStep(_M.PROVISIONED, "The new machine is approved and created.")
    return NextStep(None, "The new machine is not created yet.")


def _problem(facts: Facts) -> NextStep | None:
    """Return the failure, or the take-over, that follows from what became of one of the two machines."""
    source, target = facts.source, facts.target
    may_run = facts.step in TARGET_MAY_RUN
    if not may_run:
        ended = source.is_over or source.state is _S.TERMINATING
        if ended and source.end_code in _MEANT:
            return _fail(facts, "The run's own machine was ended, so there is nothing left to move.")
        if source.work is not None and source.work.is_over and not source.is_over:
            return _fail(facts, "The job ended before it was moved.")
        if source.state in (_S.QUEUED, _S.STOPPED):
            return _fail(facts, "The run's own machine was stopped, or starts again elsewhere.")
    if target is None or target.state is _S.TERMINATING or target.is_over:
        return _fail(facts, "The new machine ended.")
    waits_alone = may_run and source.is_over
    if target.state not in (_S.PROVISIONING, _S.RUNNING) and not waits_alone:
        return _fail(facts, "The new machine did not start, was stopped or was lost.")
    if not waits_alone and (failed := next((s for s in target.steps if s.state is StepOutcome.FAILED), None)):
        return _fail(facts, f"The start-up of the new machine failed at {failed.name}, exit code {failed.exit_code}.")
    if facts.step is not _M.PROVISIONED and facts.step is not _M.READY and not source.is_over and _goes_on(facts):
        return _fail(facts, "The run continued by itself on the old machine.")
    if not may_run and source.is_over:
        save = facts.remote if not facts.remote_problem else None
        return NextStep(_M.PRESENT, "The old machine is lost, so the run continues from its last verified save.", save)
    return None


def _goes_on(facts: Facts) -> bool:
    return facts.source.state is _S.RUNNING and facts.source.work in TRAINS


def _provisioned(facts: Facts) -> NextStep:
    target = facts.target
    if target is None or not target.is_ready or target.work is None:
        return NextStep(None, "It still boots.")
    before = []
    for step in target.steps:
        if step.name == CHECKPOINT_STEP:
            break
        before.append(step)
    waits = next((step for step in before if step.state in _PENDING), None)
    if waits is not None:
        return NextStep(None, f"Its start-up is at {waits.name}.")
    return NextStep(_M.READY, "The new machine is ready. The run saves a last time and pauses.")


def _ready(facts: Facts) -> NextStep:
    source, newest = facts.source, facts.remote
    if source.agent is None or source.work is not Work.PAUSED:
        return NextStep(None, "The job has not paused. It must read `pause` in `asks` and report `paused`.")
    if facts.remote_problem:
        return NextStep(None, facts.remote_problem)
    if newest is None:
        return NextStep(None, "There is no checkpoint at its store.")
    if newest.at < facts.step_at - SKEW:
        minutes = plural(int((facts.step_at - newest.at) / timedelta(minutes=1)), "minute")
        return NextStep(None, f"The newest checkpoint, {newest.path}, is {minutes} older than the order to save.")
    return NextStep(
        _M.VERIFIED, f"The save {newest.path} is verified ({newest.size:,} bytes), and the run rests.", newest
    )


def _verified(facts: Facts) -> NextStep:
    step = facts.target.step(CHECKPOINT_STEP) if facts.target is not None else None
    if step is None or step.state in _PENDING:
        return NextStep(None, "It is still fetched.")
    how = "on the new machine" if step.state is StepOutcome.DONE else "left to the job, which fetches it itself"
    return NextStep(_M.PRESENT, f"The save is {how}. The run may start there.")


def _present(facts: Facts) -> NextStep:
    target = facts.target
    run = target.step(RUN) if target is not None else None
    if target is None or run is None or run.state is not StepOutcome.DONE:
        return NextStep(None, "Its command has not started yet.")
    return NextStep(_M.STARTED, "The run has started on the new machine.")


def _started(facts: Facts) -> NextStep:
    target, saved = facts.target, facts.saved_step
    if target is None or target.agent is None or target.work is None:
        return NextStep(None, "Nothing is reported yet.")
    if target.work is Work.FAILED:
        return _fail(facts, f"The job failed on the new machine with exit code {target.agent.job_exit_code}.")
    step = target.agent.step
    if target.work is Work.DONE or (step is not None and step > (saved or 0)):
        at = f"step {step:,}" if step is not None else "its end"
        return NextStep(_M.ADVANCED, f"The run is at {at} on the new machine. The old one is ended.")
    return NextStep(None, f"It is at step {step:,}." if step is not None else "It reports no step yet.")


_BY_STEP = {
    _M.PROVISIONED: _provisioned,
    _M.READY: _ready,
    _M.VERIFIED: _verified,
    _M.PRESENT: _present,
    _M.STARTED: _started,
}
