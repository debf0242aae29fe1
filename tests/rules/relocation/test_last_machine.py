"""Whatever both machines are, no step of a move ends the last machine of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from bot.rules.checkpoints.verification import Newest
from bot.rules.relocation.machines import Machine, SourceIs, source_is
from bot.rules.relocation.steps import LIMITS_S, Facts, ends_source, ends_target, next_step
from bot.wire.checkin import Work
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import ENDABLE_SESSION, ENDED_SESSION, SessionState
from ledger.kernel.steps.relocation_step import FOLLOWS, OVER, TARGET_MAY_RUN, MigrationStep
from tests.rules.relocation.test_steps import NOW, SAVE, agent, facts, late
from tests.support.clock import START

_M, _S = MigrationStep, SessionState
MEANT = frozenset({EndReason.ASKED, EndReason.COMPLETED, EndReason.WORK_FAILED})
CODES = (*sorted(MEANT), EndReason.NO_HEARTBEAT, EndReason.LOST, EndReason.RESERVATION_OVER, EndReason.OUTBID)
ENDS = frozenset({_S.TERMINATING}) | ENDED_SESSION


def sources() -> Iterator[Machine]:
    """Every source: its state, why it ends, its job, whether it is silent, and whether its cloud shows it stopped."""
    works = (None, Work.RUNNING, Work.PAUSED, Work.DONE, Work.FAILED)
    for state, work in product(_S, works):
        reported = agent(work) if work is not None else None
        ends = state in ENDS
        codes, silent, still = (CODES, (False,), (False, True)) if ends else (("",), (False, True), (False,))
        for code, is_silent, is_still in product(codes, silent, still):
            yield Machine(state, code, True, True, reported, is_silent, is_still)


def targets() -> Iterator[Machine | None]:
    """Every target: none, one that boots, that failed to start, or whose run began at the save, past it or below."""
    yield None
    ready = Machine(_S.RUNNING, "", True, True, agent(step=10))
    for state in _S:
        yield replace(ready, state=state)
        yield replace(ready, state=state, agent=None, is_ready=False, is_live=False)
    for reported in (
        agent(environment="failed"),
        agent(run="waiting"),
        agent(step=9),
        agent(Work.FAILED, step=12),
        agent(Work.DONE, step=12),
        replace(agent(step=500), lowest_step=1),
        replace(agent(step=500), lowest_step=None),
    ):
        yield replace(ready, agent=reported)


def every(step: MigrationStep) -> Iterator[Facts]:
    """Everything that can be known in a step."""
    stores: tuple[tuple[Newest | None, str], ...] = ((SAVE, ""),)
    if step in (_M.PROVISIONED, _M.READY, _M.ENDING):
        stores = (*stores, (None, ""), (None, "It can't be read."))
    for source, target, (remote, problem) in product(sources(), targets(), stores):
        yield facts(step, source=source, target=target, remote=remote, remote_problem=problem)


def may_end_without_target(source: Machine, step: MigrationStep) -> bool:
    """Whether a run loses nothing with its target: it is on its own machine, or somebody meant it to be over."""
    if source.state is _S.RUNNING and not source.is_silent:
        return True  # Where its job is over there, nothing is left to move.
    meant = source.state is _S.STOPPED or (source.state in ENDS and source.end_code in MEANT)
    return (meant or (source.work is not None and source.work.is_over and source.state not in ENDS)) and (
        step not in TARGET_MAY_RUN
    )


@pytest.mark.parametrize("step", sorted(set(_M) - OVER))
def test_no_step_ends_the_last_machine(step: MigrationStep) -> None:
    times = (NOW, START + timedelta(minutes=late(step))) if step in LIMITS_S else (NOW,)
    for known in every(step):
        target, source = known.target, known.source
        is_there = target is not None and target.state not in ENDS
        for now in times:
            found = next_step(known, now)
            assert found.to is None or found.to in FOLLOWS[step], (found, known)
            if found.to is _M.ENDING and is_there:
                assert may_end_without_target(source, step), (found, known)
        if ends_target(known):
            assert may_end_without_target(source, step), known
        if ends_source(known):
            assert source.state in ENDABLE_SESSION
            assert target is not None
            assert (target.state, target.is_live) == (_S.RUNNING, True)
            reported = target.agent
            assert reported is not None
            assert reported.work is not Work.FAILED
            assert reported.work is Work.DONE or (reported.step or 0) > 9 <= (reported.lowest_step or 0), known


@pytest.mark.parametrize("step", sorted(LIMITS_S))
def test_the_clock_of_a_step_stops_while_nobody_knows_what_became_of_the_source(step: MigrationStep) -> None:
    waits = agent(step=9, run="waiting", checkpoint="waiting", environment="waiting")
    ready = Machine(_S.RUNNING, "", True, True, waits)
    for source in (
        Machine(_S.RUNNING, "", True, True, agent(), is_silent=True),
        Machine(_S.TERMINATING, EndReason.NO_HEARTBEAT),
        Machine(_S.QUEUED),
    ):
        assert source_is(step, source) is SourceIs.AWAY
        found = next_step(facts(step, source=source, target=ready), START + timedelta(minutes=late(step)))
        assert (found.to, found.stops_clock, "kept" in found.why) == (None, True, True), found
    # It counts again from then on.
    known = facts(step, source=Machine(_S.RUNNING, agent=agent(Work.PAUSED)), target=ready, remote=None)
    at = START + timedelta(minutes=late(step))
    assert next_step(known, at).to is _M.ENDING
    assert next_step(replace(known, clock_from=at - timedelta(minutes=1)), at).to is None


def test_a_failed_move_whose_source_is_lost_before_the_target_was_ended_goes_on_there() -> None:
    lost = Machine(_S.TERMINATED, EndReason.LOST)
    assert next_step(facts(_M.ENDING, source=lost), NOW).to is _M.PRESENT
    assert next_step(facts(_M.ENDING, source=lost, target=Machine(_S.TERMINATING)), NOW).to is None
    ended = Machine(_S.TERMINATED, EndReason.ASKED)
    assert ends_target(facts(_M.ENDING, source=ended))


def test_a_target_that_is_lost_before_the_source_was_ended_leaves_the_run_to_it() -> None:
    here = Machine(_S.RUNNING, "", True, True, agent(Work.PAUSED))
    for target in (None, Machine(_S.TERMINATED), Machine(_S.QUEUED)):
        known = facts(_M.ADVANCED, source=here, target=target)
        assert not ends_source(known)
        assert next_step(known, NOW).to is _M.ENDING
    assert ends_source(facts(_M.ADVANCED, source=here))
