"""Decide the next step of a migration from what is known of both machines, the request and the store.

The order keeps four promises: a verified copy exists at every moment, two machines never train on one store, two
machines are paid only as long as a step needs, and no failure ends the last machine of a run. Every step has a longest
time, after which the migration fails. The clock of a step stops while nobody knows what became of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import takewhile
from typing import Final

from bot.rules.checkpoints.verification import Newest
from bot.rules.nodes.machine_report import RUN
from bot.rules.nodes.resume_steps import CHECKPOINT_STEP
from bot.rules.relocation.machines import Machine, SourceIs, began_below, is_past_save, source_is
from bot.rules.values.phrases import hours, plural
from bot.wire.checkin import StepOutcome, Work
from ledger.kernel.states import ENDABLE_SESSION, RequestState, SessionState
from ledger.kernel.steps.relocation_step import TARGET_MAY_RUN, MigrationStep

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
    _M.VERIFIED: "the new machine had not fetched the save",
    _M.PRESENT: "the run did not start on the new machine",
    _M.STARTED: "the run did not get past its save on the new machine",
}
#: Clocks of a store and of this service differ by less.
SKEW: Final = timedelta(minutes=1)
_CLOSED: Final = frozenset({_R.REJECTED, _R.CANCELLED, _R.EXPIRED, _R.UNAVAILABLE})
_PENDING: Final = frozenset({StepOutcome.WAITING, StepOutcome.RUNNING})
#: Notes for people while nobody knows what became of the source.
_WAITS_SILENT: Final = "The old machine doesn't report, so the new one is kept."
_WAITS_ENDING: Final = "The old machine is ending, so the new one is kept."
_WAITS_ELSEWHERE: Final = "The old machine starts again elsewhere, so the new one is kept."
_TAKES_OVER: Final = "The old machine is lost, so the run continues from its last verified save."
_TAKES_OVER_STUCK: Final = (
    "The old machine doesn't work and is kept in grace, so the run continues from its last verified save."
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold what a decision is made on. `remote` is the newest file at the store; None: none, or not looked for.

    `remote_problem` says why the store could not be read or its newest file does not count. `clock_from` is from when
    the longest time of the step counts.
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
    clock_from: datetime | None = None
    #: The target took the run over from a source that did not pause for it.
    is_taken_over: bool = False

    @property
    def source_is(self) -> SourceIs:
        """What is known of the source."""
        return source_is(self.step, self.source)

    @property
    def has_target(self) -> bool:
        """Whether the target is there or comes, and nobody ordered its end."""
        return self.target is not None and not self.target.is_ending

    @property
    def waits_for_stuck_source(self) -> bool:
        """Whether a ready target waits for a source that is kept in grace: it would be paid and nobody would train."""
        target = self.target
        if self.step not in (_M.READY, _M.ENDING) or target is None or not self.has_target:
            return False
        if target.in_grace or target.is_still or _boots(target):
            return False
        return self.source_is is SourceIs.AWAY and self.source.is_stuck and not self.source.is_ending


@dataclass(frozen=True, slots=True)
class NextStep:
    """Say what follows: another step, or without `to` what it waits for. `save` is newly verified.

    With `stops_clock` the time until the next look counts for no step. `takes_over`: the source did not pause for it.
    """

    to: MigrationStep | None
    why: str
    save: Newest | None = None
    stops_clock: bool = False
    takes_over: bool = False


def looks_at_store(facts: Facts) -> bool:
    """Whether the next decision needs the newest file of the store."""
    if facts.step is _M.READY and facts.source.work is Work.PAUSED:
        return True
    takes_over = facts.step in (_M.PROVISIONED, _M.READY, _M.ENDING) and facts.has_target
    return takes_over and (facts.source_is is SourceIs.LOST or facts.waits_for_stuck_source)


def has_last_machine(facts: Facts) -> bool:
    """Whether the target is the last machine of the run, so that no inferred step may pause it."""
    return facts.step in TARGET_MAY_RUN and facts.source_is is SourceIs.LOST


def ends_target(facts: Facts) -> bool:
    """Whether the target of a failed migration may be ended now: the run is on its own machine, or has ended.

    Where nobody knows that, the target may be all that is left of the run.
    """
    return facts.step is _M.ENDING and facts.source_is in (SourceIs.HERE, SourceIs.OVER)


def ends_source(facts: Facts) -> bool:
    """Whether the source may be ended now: the run is past its save on a target that runs, and nothing is lost."""
    is_open = facts.step is _M.ADVANCED and facts.source.state in ENDABLE_SESSION
    return is_open and facts.target is not None and _goes_on_there(facts.target, facts) and not _holds_newer_work(facts)


def next_step(facts: Facts, now: datetime) -> NextStep:
    """Decide the next step of an open migration."""
    if facts.step is _M.DESTROYED:
        return NextStep(_M.DONE, "The move is done.")
    if facts.step in _WITHOUT_LIMIT:
        return _WITHOUT_LIMIT[facts.step](facts)
    decision = _problem(facts) or _BY_STEP[facts.step](facts)
    if decision.to is not None:
        return decision
    if facts.source_is is SourceIs.AWAY:
        return replace(decision, why=f"{decision.why} {_waits(facts)}", stops_clock=True)
    if facts.source_is is SourceIs.LOST and facts.target is not None and _boots(facts.target):
        return replace(decision, stops_clock=True)  # It took over before its start-up was done.
    if now - (facts.clock_from or facts.step_at) > timedelta(seconds=LIMITS_S[facts.step]):
        spent = hours(Decimal(LIMITS_S[facts.step]) / 3600)
        return _fail(facts, f"After {spent}, {_LATE[facts.step]}: {_lower(decision.why)}")
    return decision


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _waits(facts: Facts) -> str:
    if facts.source.is_ending:
        return _WAITS_ENDING
    return _WAITS_SILENT if facts.source.state is _S.RUNNING else _WAITS_ELSEWHERE


def _fail(facts: Facts, why: str) -> NextStep:
    """Fail: the target is ended, unless it is, or may be, all that is left of the run."""
    if facts.source_is is SourceIs.LOST and facts.step in TARGET_MAY_RUN:
        return NextStep(_M.FAILED, why)
    if facts.source_is is SourceIs.AWAY and facts.has_target:
        return NextStep(None, why, stops_clock=True)
    return NextStep(_M.ENDING, why)


def _checked(facts: Facts) -> NextStep:
    source, target = facts.source, facts.target
    if source.work is not None and source.work.is_over and not source.is_ending:
        return _fail(facts, "The job ended before the move began.")
    if facts.request in _CLOSED:
        said = f" {facts.request_outcome}" if facts.request_outcome else ""
        return NextStep(_M.ENDING, f"The request for the new machine is {facts.request}.{said}")
    if target is not None and target.is_ending:
        return NextStep(_M.ENDING, "The new machine ended before it was used.")
    if source.state is not _S.RUNNING and (target is None or facts.source_is is SourceIs.OVER):
        return NextStep(_M.ENDING, "The old machine stopped running before the move began.")
    if target is not None and target.is_live:
        return NextStep(_M.PROVISIONED, "The new machine is approved and created.")
    return NextStep(None, "The new machine is not created yet.")


def _ending(facts: Facts) -> NextStep:
    """Wait for the end of the target, unless it became the last machine of the run before its end was ordered."""
    if facts.target is None or facts.target.is_over:
        return NextStep(_M.FAILED, "")  # Its note still says why it failed.
    if facts.has_target and (facts.source_is is SourceIs.LOST or facts.waits_for_stuck_source):
        return _take_over(facts)
    return NextStep(None, "", stops_clock=facts.source_is is SourceIs.AWAY)


def _advanced(facts: Facts) -> NextStep:
    if facts.source.is_over:
        return NextStep(_M.DESTROYED, "The old machine is gone.")
    if facts.source.is_ending:
        return NextStep(None, "The old machine is ending.")
    if facts.target is None or facts.target.is_ending:
        return NextStep(_M.ENDING, "The new machine ended.")
    if not _goes_on_there(facts.target, facts) and facts.source_is is SourceIs.HERE:
        return NextStep(_M.ENDING, "The run stopped on the new machine before the old one was ended.")
    if _holds_newer_work(facts):
        return NextStep(None, "The old machine's disk is kept in grace until the run is past the last step there.")
    return NextStep(None, "The old machine is ended next.")


def _holds_newer_work(facts: Facts) -> bool:
    """Whether the source is kept in grace, and its disk may hold later steps than the target has reached."""
    source, target = facts.source.agent, facts.target.agent if facts.target is not None else None
    if not facts.source.in_grace or source is None or source.step is None or target is None:
        return False
    return target.work is not Work.DONE and (target.step or 0) < source.step


def _goes_on_there(target: Machine, facts: Facts) -> bool:
    return target.state is _S.RUNNING and target.is_live and is_past_save(target, facts.saved_step)


def _take_over(facts: Facts) -> NextStep:
    save = facts.remote if not facts.remote_problem else None
    why = _TAKES_OVER if facts.source_is is SourceIs.LOST else _TAKES_OVER_STUCK
    return NextStep(_M.PRESENT, why, save, takes_over=True)


def _problem(facts: Facts) -> NextStep | None:
    """Return the failure, or the take-over, that follows from what became of one of the two machines."""
    source, target, at = facts.source, facts.target, facts.source_is
    if at is SourceIs.OVER:
        return _fail(facts, _over(source))
    if target is None or target.is_ending:
        return _fail(facts, "The new machine ended.")
    if at is SourceIs.LOST and facts.step not in TARGET_MAY_RUN:
        return _take_over(facts)
    if facts.waits_for_stuck_source:
        return _take_over(facts)
    if began_below(target.agent, facts.saved_step):
        return _fail(facts, _began_below(facts))
    if at is not SourceIs.LOST:
        if target.state not in (_S.PROVISIONING, _S.RUNNING):
            return _fail(facts, "The new machine did not start, was stopped or was lost.")
        if (failed := target.failed_step) is not None:
            said = f"The start-up of the new machine failed at {failed.name}, exit code {failed.exit_code}."
            return _fail(facts, said)
    # A source that comes back after a take-over trains until its job has read that it is to pause.
    may_train = facts.step in (_M.PROVISIONED, _M.READY) or (facts.is_taken_over and not source.is_back)
    if source.trains and not may_train:
        return _fail(facts, "The run continued by itself on the old machine.")
    return None


def _over(source: Machine) -> str:
    if source.is_ending:
        return "The old machine was ended, so nothing is left to move."
    if source.state is _S.STOPPED:
        return "The old machine was stopped."
    return "The job ended before it was moved."


def _began_below(facts: Facts) -> str:
    step = facts.target.agent.lowest_step if facts.target is not None and facts.target.agent is not None else None
    return (
        f"The new machine reported step {step or 0:,}, and the save is of step {facts.saved_step or 0:,}. "
        "The run did not continue from its save, so it was paused there."
    )


def _provisioned(facts: Facts) -> NextStep:
    boots = _boots(facts.target) if facts.target is not None else "It still boots."
    if boots:
        return NextStep(None, boots)
    return NextStep(_M.READY, "The new machine is ready. The run saves a last time and pauses.")


def _boots(target: Machine) -> str:
    """Say how far a target is that has not reached the fetch of its save; "" for one that has."""
    if not target.is_ready or target.work is None:
        return "It still boots."
    before = takewhile(lambda step: step.name != CHECKPOINT_STEP, target.steps)
    waits = next((step for step in before if step.state in _PENDING), None)
    return f"Its start-up is at {waits.name}." if waits is not None else ""


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
        return NextStep(None, "The save is still being fetched.")
    fetched = "The save is on the new machine" if step.state is StepOutcome.DONE else "The job fetches its save itself"
    return NextStep(_M.PRESENT, f"{fetched}. The run may start there.")


def _present(facts: Facts) -> NextStep:
    target = facts.target
    run = target.step(RUN) if target is not None else None
    if target is None or run is None or run.state is not StepOutcome.DONE:
        return NextStep(None, "Its command has not started yet.")
    return NextStep(_M.STARTED, "The run has started on the new machine.")


def _started(facts: Facts) -> NextStep:
    target = facts.target
    if target is None or target.agent is None or target.work is None:
        return NextStep(None, "Nothing is reported yet.")
    if target.work is Work.FAILED:
        return _fail(facts, f"The job failed on the new machine with exit code {target.agent.job_exit_code}.")
    step = target.agent.step
    if is_past_save(target, facts.saved_step):
        at = f"step {step:,}" if step is not None else "its end"
        return NextStep(_M.ADVANCED, f"The run is at {at} on the new machine. The old one is ended.")
    return NextStep(None, f"It is at step {step:,}." if step is not None else "It reports no step yet.")


_WITHOUT_LIMIT = {
    _M.CHECKED: _checked,
    _M.ENDING: _ending,
    _M.ADVANCED: _advanced,
}
_BY_STEP = {
    _M.PROVISIONED: _provisioned,
    _M.READY: _ready,
    _M.VERIFIED: _verified,
    _M.PRESENT: _present,
    _M.STARTED: _started,
}
