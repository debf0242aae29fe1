"""Describe the two machines of a migration, and say whether the run can continue on either of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Final

from bot.rules.nodes.checkins import NodeStatus
from bot.rules.relocation.asks import FAST_S
from bot.wire.checkin import StartupStep, StepOutcome, Work
from ledger.kernel.end_reason import WENT_WELL, WENT_WRONG, EndGroup, EndReason, reasons
from ledger.kernel.states import ENDED_SESSION, SessionState
from ledger.kernel.steps.relocation_step import TARGET_MAY_RUN, MigrationStep

_S = SessionState

#: After this time without a report an agent counts as unresponsive: during a move it reports every few seconds.
SILENT: Final = timedelta(seconds=8 * FAST_S)
#: Ends of the source after which nothing is left to move: somebody ended it, or its job ended. A machine that is given
#: up ends alone: its run continues on the target.
MEANT_ENDS: Final = (reasons(EndGroup.ORDERED) - {EndReason.GIVEN_UP}) | WENT_WELL | WENT_WRONG
#: A job that reports one of these writes checkpoints.
TRAINS: Final = frozenset({Work.RUNNING, Work.SAVING})


@dataclass(frozen=True, slots=True)
class Machine:
    """Describe one of the two sessions: its state, why it ends, whether a cloud has its machine, and its agent.

    `is_silent`: its agent is unresponsive. `is_still`: its cloud lists it as stopped. `in_grace`: it stopped working
    and is kept; `is_stuck`: for longer than a machine has to recover by itself. `is_back`: it has worked again for so
    long that its job has read what it is asked.
    """

    state: SessionState
    end_code: str = ""
    is_live: bool = False
    is_ready: bool = False
    agent: NodeStatus | None = None
    is_silent: bool = False
    is_still: bool = False
    in_grace: bool = False
    is_stuck: bool = False
    is_back: bool = True

    @property
    def is_over(self) -> bool:
        """Whether its machine is proved gone and no other one comes."""
        return self.state in ENDED_SESSION

    @property
    def is_ending(self) -> bool:
        """Whether its end was ordered, or is proved."""
        return self.is_over or self.state is _S.TERMINATING

    @property
    def work(self) -> Work | None:
        """What its agent reported of its job; None before its first report."""
        return self.agent.work if self.agent is not None and self.agent.at is not None else None

    @property
    def trains(self) -> bool:
        """Whether its job still trains."""
        return self.state is _S.RUNNING and self.work in TRAINS

    def step(self, name: str) -> StartupStep | None:
        """Return a step of its start-up by its name."""
        return next((one for one in self.steps if one.name == name), None)

    @property
    def steps(self) -> tuple[StartupStep, ...]:
        """Return the steps of its start-up, as far as its agent reported them."""
        return self.agent.machine.steps if self.agent is not None and self.agent.machine is not None else ()

    @property
    def failed_step(self) -> StartupStep | None:
        """Return the step at which its start-up failed."""
        return next((one for one in self.steps if one.state is StepOutcome.FAILED), None)


class SourceIs(Enum):
    """Say whether the run can continue on its old machine."""

    #: It runs, and its agent reports.
    HERE = auto()
    #: A person ended or stopped it, or its job is over: nothing is left to move.
    OVER = auto()
    #: Nobody knows yet: its agent is unresponsive, it ends and no person requested that, or it starts elsewhere.
    AWAY = auto()
    #: It no longer trains, and no person requested that.
    LOST = auto()


def source_is(step: MigrationStep, source: Machine) -> SourceIs:
    """Say what is known of the source. Once the target may run, the source's end is no longer the run's end."""
    may_run = step in TARGET_MAY_RUN
    if source.is_ending:
        if not may_run and source.end_code in MEANT_ENDS:
            return SourceIs.OVER
        is_lost = source.is_over or source.is_still or source.end_code == EndReason.GIVEN_UP
        return SourceIs.LOST if is_lost else SourceIs.AWAY
    if source.state is _S.STOPPED or (source.work is not None and source.work.is_over):
        return SourceIs.LOST if may_run else SourceIs.OVER
    if source.state is not _S.RUNNING or source.is_silent:
        return SourceIs.AWAY
    return SourceIs.HERE


def began_below(agent: NodeStatus | None, saved_step: int | None) -> bool:
    """Whether a command reported a step below the save that it should have continued from."""
    return agent is not None and agent.lowest_step is not None and agent.lowest_step < (saved_step or 0)


def is_past_save(target: Machine, saved_step: int | None) -> bool:
    """Whether the target continued from the save and is past it: its first step counts, not only its last one."""
    agent = target.agent
    if agent is None or target.work in (None, Work.FAILED) or began_below(agent, saved_step):
        return False
    if target.work is Work.DONE:
        return True
    return agent.lowest_step is not None and agent.step is not None and agent.step > (saved_step or 0)
