"""The step machine of a migration: what leads on, what fails, and who takes over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.rules.checkpoints.verification import Newest
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.relocation.machines import Machine
from bot.rules.relocation.steps import LIMITS_S, Facts, has_last_machine, looks_at_store, next_step
from bot.wire.checkin import MachineReport, StartupStep, StepOutcome, Work
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import RequestState, SessionState
from ledger.kernel.steps.relocation_step import FOLLOWS, OVER, TARGET_MAY_RUN, MigrationStep
from tests.support.clock import START

_M, _S = MigrationStep, SessionState
SAVE = Newest("run/step-9/model.pt", 1_000, START + timedelta(minutes=1))
PLAN = ("environment", "checkpoint", "start", "run")
NOW = START + timedelta(minutes=2)


def agent(work: Work = Work.RUNNING, step: int | None = 9, **steps: str) -> NodeStatus:
    """What an agent reported; `steps` are the states of its start-up, which is done where nothing is said."""
    found = tuple(StartupStep(one, StepOutcome(steps.get(one, "done")), exit_code=3) for one in PLAN)
    lowest = step if steps.get("run", "done") == "done" else None
    machine = MachineReport(steps=found)
    return NodeStatus(at=NOW, work=work, step=step, lowest_step=lowest, machine=machine, job_exit_code=1)


def facts(step: MigrationStep, **changes: Any) -> Facts:
    """Everything that lets this step be followed by the next one."""
    paused = Work.RUNNING if step in (_M.CHECKED, _M.PROVISIONED) else Work.PAUSED
    source = Machine(_S.RUNNING, "", True, True, agent(paused))
    target = Machine(_S.RUNNING, "", True, True, replace(agent(step=10), lowest_step=9))
    if step is _M.ADVANCED:
        source = Machine(_S.TERMINATED, EndReason.MIGRATED)
    made = Facts(step, START, 9, RequestState.APPROVED, "", source, target, SAVE)
    return replace(made, **changes)


def decide(step: MigrationStep, minutes: float = 2, **changes: Any) -> tuple[MigrationStep | None, str]:
    found = next_step(facts(step, **changes), START + timedelta(minutes=minutes))
    assert found.to is None or found.to in FOLLOWS[step]
    return found.to, found.why


def late(step: MigrationStep) -> float:
    return LIMITS_S[step] / 60 + 1


@pytest.mark.parametrize(
    ("step", "to"),
    [
        (_M.CHECKED, _M.PROVISIONED),
        (_M.PROVISIONED, _M.READY),
        (_M.READY, _M.VERIFIED),
        (_M.VERIFIED, _M.PRESENT),
        (_M.PRESENT, _M.STARTED),
        (_M.STARTED, _M.ADVANCED),
        (_M.ADVANCED, _M.DESTROYED),
        (_M.DESTROYED, _M.DONE),
    ],
)
def test_each_step_leads_to_the_next(step: MigrationStep, to: MigrationStep) -> None:
    assert decide(step)[0] is to


def test_every_open_step_may_be_left_and_none_that_is_over() -> None:
    assert {step for step in _M if not FOLLOWS[step]} == OVER


def test_the_request_and_the_source_before_anything_is_created() -> None:
    waits = facts(_M.CHECKED).target
    assert waits is not None
    for changes, why in (
        ({"request": RequestState.REJECTED, "request_outcome": "too dear", "target": None}, "is rejected. too dear"),
        ({"request": RequestState.EXPIRED, "target": None}, "is expired."),
        ({"source": Machine(_S.QUEUED), "target": None}, "stopped running"),
        ({"source": Machine(_S.TERMINATED, EndReason.LOST), "target": None}, "stopped running"),
        ({"source": Machine(_S.TERMINATING, EndReason.ASKED)}, "stopped running"),
        ({"source": Machine(_S.STOPPED)}, "stopped running"),
        ({"source": Machine(_S.RUNNING, agent=agent(Work.DONE))}, "The job ended"),
        ({"target": Machine(_S.FAILED)}, "ended before it was used"),
        ({"target": Machine(_S.TERMINATING)}, "ended before it was used"),
    ):
        to, said = decide(_M.CHECKED, **changes)
        assert (to, why in said) == (_M.ENDING, True), said
    # A target that was approved already is all that is left of a run whose machine is lost.
    for source in (Machine(_S.QUEUED), Machine(_S.TERMINATED, EndReason.LOST)):
        assert decide(_M.CHECKED, source=source)[0] is _M.PROVISIONED
        assert decide(_M.CHECKED, source=source, target=Machine(_S.QUEUED))[0] is None
    assert decide(_M.CHECKED, 600, target=None)[0] is None
    assert decide(_M.CHECKED, 600, target=replace(waits, is_live=False), source=Machine(_S.RUNNING))[0] is None


def test_a_target_is_ready_when_its_start_up_reached_the_save() -> None:
    target = facts(_M.PROVISIONED).target
    assert target is not None
    assert decide(_M.PROVISIONED, target=replace(target, is_ready=False)) == (None, "It still boots.")
    assert decide(_M.PROVISIONED, target=replace(target, agent=None)) == (None, "It still boots.")
    waits = replace(target, agent=agent(environment="running", checkpoint="waiting"))
    assert decide(_M.PROVISIONED, target=waits) == (None, "Its start-up is at environment.")
    assert decide(_M.PROVISIONED, target=replace(target, agent=NodeStatus(at=NOW)))[0] is _M.READY
    to, said = decide(_M.PROVISIONED, late(_M.PROVISIONED), target=waits)
    assert (to, said) == (
        _M.ENDING,
        "After 1.5 hours, the new machine was not ready: its start-up is at environment.",
    )


def test_the_last_save_is_verified_only_after_the_pause() -> None:
    for changes, why in (
        ({"source": Machine(_S.RUNNING, agent=agent(Work.SAVING))}, "has not paused"),
        ({"source": Machine(_S.RUNNING)}, "has not paused"),
        ({"remote_problem": "It can't be read."}, "can't be read"),
        ({"remote": None}, "no checkpoint"),
        ({"remote": replace(SAVE, at=START - timedelta(minutes=7))}, "7 minutes older"),
    ):
        to, said = decide(_M.READY, **changes)
        assert (to, why in said) == (None, True), said
        assert decide(_M.READY, late(_M.READY), **changes)[0] is _M.ENDING
    assert next_step(facts(_M.READY), NOW).save == SAVE


def test_the_save_is_fetched_or_left_to_the_job() -> None:
    target = facts(_M.VERIFIED).target
    assert target is not None
    for state, to in (("running", None), ("waiting", None), ("skipped", _M.PRESENT)):
        assert decide(_M.VERIFIED, target=replace(target, agent=agent(checkpoint=state, run="waiting")))[0] is to
    # Only what a step has checked is said to be there.
    skipped = replace(target, agent=agent(checkpoint="skipped", run="waiting"))
    assert decide(_M.VERIFIED, target=skipped)[1] == "The job fetches its save itself. The run may start there."
    assert decide(_M.VERIFIED)[1] == "The save is on the new machine. The run may start there."
    assert decide(_M.VERIFIED, target=replace(target, agent=NodeStatus(at=NOW)))[0] is None


def test_a_start_and_the_first_step_after_the_save() -> None:
    target = facts(_M.PRESENT).target
    assert target is not None
    assert decide(_M.PRESENT, target=replace(target, agent=agent(run="waiting")))[0] is None
    assert decide(_M.STARTED, target=replace(target, agent=agent(step=9)))[1] == "It is at step 9."
    assert decide(_M.STARTED, target=replace(target, agent=agent(step=None)))[1] == "It reports no step yet."
    assert decide(_M.STARTED, target=replace(target, agent=None))[1] == "Nothing is reported yet."
    assert decide(_M.STARTED, target=replace(target, agent=agent(Work.DONE, step=None)))[0] is _M.ADVANCED
    assert decide(_M.STARTED, saved_step=None)[0] is _M.ADVANCED
    assert decide(_M.STARTED, target=replace(target, agent=replace(agent(step=10), lowest_step=None)))[0] is None
    to, said = decide(_M.STARTED, target=replace(target, agent=agent(Work.FAILED)))
    assert (to, said) == (_M.ENDING, "The job failed on the new machine with exit code 1.")


@pytest.mark.parametrize("step", [_M.PROVISIONED, _M.READY, _M.VERIFIED, _M.PRESENT, _M.STARTED])
def test_a_target_that_ends_or_fails(step: MigrationStep) -> None:
    target = facts(step).target
    assert target is not None
    for other in (
        None,
        replace(target, state=_S.TERMINATING),
        replace(target, state=_S.FAILED),
        replace(target, state=_S.QUEUED),
        replace(target, state=_S.STOPPED),
        replace(target, agent=agent(environment="failed")),
    ):
        assert decide(step, target=other)[0] is _M.ENDING


@pytest.mark.parametrize("step", [_M.PROVISIONED, _M.READY, _M.VERIFIED])
def test_a_source_that_is_ended_on_purpose_or_done_ends_the_move(step: MigrationStep) -> None:
    for source in (
        Machine(_S.TERMINATING, EndReason.ASKED),
        Machine(_S.TERMINATED, EndReason.COMPLETED),
        Machine(_S.RUNNING, agent=agent(Work.DONE)),
        Machine(_S.STOPPED),
    ):
        assert decide(step, source=source)[0] is _M.ENDING
    # One that ends by its approved time still exists, so the target waits for its proved end.
    ending = Machine(_S.TERMINATING, EndReason.RESERVATION_OVER, agent=agent(Work.PAUSED))
    assert decide(step, source=ending)[0] is not _M.ENDING


@pytest.mark.parametrize("step", [_M.PROVISIONED, _M.READY, _M.VERIFIED])
def test_a_lost_source_leaves_its_run_to_the_target(step: MigrationStep) -> None:
    lost = Machine(_S.TERMINATED, EndReason.LOST)
    found = next_step(facts(step, source=lost), NOW)
    assert (found.to, found.save) == (_M.PRESENT, SAVE)
    assert next_step(facts(step, source=lost, remote_problem="down"), NOW).save is None
    assert looks_at_store(facts(step, source=lost)) is (step is not _M.VERIFIED)
    # What its cloud shows as stopped trains no more, so nobody waits for the proof of its end.
    still = Machine(_S.TERMINATING, EndReason.NO_HEARTBEAT, is_still=True)
    assert decide(step, source=still)[0] is _M.PRESENT


@pytest.mark.parametrize("step", [_M.PRESENT, _M.STARTED])
def test_a_target_that_is_all_that_is_left_is_never_ended(step: MigrationStep) -> None:
    lost = Machine(_S.TERMINATED, EndReason.LOST)
    target = facts(step).target
    assert target is not None
    # Its own replacement comes, or its start-up runs again after a reboot.
    assert decide(step, source=lost, target=replace(target, state=_S.QUEUED, agent=None))[0] is None
    assert decide(step, source=lost, target=replace(target, agent=agent(run="failed", step=None)))[0] is None
    # It took over before its start-up was done, so nobody knows yet whether the run starts there.
    boots = replace(target, is_ready=False, agent=None)
    found = next_step(facts(step, source=lost, target=boots), START + timedelta(minutes=late(step)))
    assert (found.to, found.stops_clock) == (None, True)
    assert decide(step, late(step), source=lost, target=replace(target, agent=agent(run="waiting", step=9)))[0] is (
        _M.FAILED
    )
    assert decide(step, source=lost, target=Machine(_S.TERMINATED))[0] is _M.FAILED


@pytest.mark.parametrize("step", [_M.VERIFIED, _M.PRESENT, _M.STARTED])
def test_a_source_that_goes_on_by_itself_stops_the_target(step: MigrationStep) -> None:
    to, said = decide(step, source=Machine(_S.RUNNING, agent=agent(Work.RUNNING)))
    assert (to, "by itself" in said) == (_M.ENDING, True)
    assert decide(step, source=Machine(_S.TERMINATING, EndReason.RESERVATION_OVER))[0] is not _M.ENDING


def test_the_end_of_either_machine_is_waited_for() -> None:
    assert decide(_M.ADVANCED, 600, source=Machine(_S.TERMINATING, EndReason.MIGRATED))[0] is None
    assert decide(_M.ENDING, 600, target=Machine(_S.TERMINATING))[0] is None
    assert decide(_M.ENDING, target=None)[0] is _M.FAILED
    assert decide(_M.ENDING, target=Machine(_S.TERMINATED))[0] is _M.FAILED
    assert looks_at_store(facts(_M.READY))
    assert not looks_at_store(facts(_M.READY, source=Machine(_S.RUNNING)))
    assert not looks_at_store(facts(_M.READY, source=Machine(_S.RUNNING, agent=NodeStatus())))
    assert not any(looks_at_store(facts(step, source=Machine(_S.TERMINATED))) for step in TARGET_MAY_RUN)


def test_a_ready_target_takes_over_from_a_source_that_stays_in_grace() -> None:
    stuck = Machine(_S.RUNNING, "", True, True, agent(), is_silent=True, in_grace=True, is_stuck=True)
    for step in (_M.READY, _M.ENDING):
        assert looks_at_store(facts(step, source=stuck))
        assert decide(step, source=stuck)[0] is _M.PRESENT
        assert decide(step, source=replace(stuck, is_stuck=False))[0] is not _M.PRESENT
        assert decide(step, source=stuck, target=Machine(_S.RUNNING, in_grace=True))[0] is not _M.PRESENT


def test_a_source_in_grace_is_kept_until_the_target_is_past_its_last_step() -> None:
    source = Machine(_S.RUNNING, "", True, True, agent(step=40), is_silent=True, in_grace=True)
    target = Machine(_S.RUNNING, "", True, True, replace(agent(step=39), lowest_step=9))
    assert "kept in grace" in decide(_M.ADVANCED, source=source, target=target)[1]
    for reached in (agent(step=40), agent(Work.DONE, step=12)):
        past = replace(target, agent=replace(reached, lowest_step=9))
        assert decide(_M.ADVANCED, source=source, target=past)[1] == "The old machine is ended next."
    for known in (replace(source, in_grace=False), replace(source, agent=None)):
        assert decide(_M.ADVANCED, source=known, target=target)[1] == "The old machine is ended next."


def test_the_last_machine_is_the_target_of_a_source_that_is_lost() -> None:
    lost = Machine(_S.TERMINATED, EndReason.LOST)
    assert has_last_machine(facts(_M.PRESENT, source=lost))
    assert not has_last_machine(facts(_M.PRESENT))
    assert not has_last_machine(facts(_M.READY, source=lost))
