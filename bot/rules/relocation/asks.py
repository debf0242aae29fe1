"""Say what the agents of a migration are asked, so that at most one machine ever trains on one store.

Everything follows from the step that is stored: nothing is switched on or off on the machines, and a lost answer or a
process that dies changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bot.wire.checkin import NodeInstruction
from ledger.kernel.steps.relocation_step import OVER, TARGET_MAY_RUN, MigrationStep

#: Seconds between two check-ins of both machines while a run is being moved: both are paid for.
FAST_S: Final = 15
#: The words for a target: from where its run continues, the step of that save, and that it may start.
RESUME, RESUME_STEP, START = "resume=", "resume_step=", "start"

_I, _M = NodeInstruction, MigrationStep
#: The source is silent from the verified save on: what it wrote later would be a second trainer's.
_PAUSED = frozenset({_M.VERIFIED}) | TARGET_MAY_RUN
#: From here on the run has shown on the target that it continued from its save.
_PROVED = frozenset({_M.ADVANCED, _M.DESTROYED})


@dataclass(frozen=True, slots=True)
class MovedFrom:
    """Describe the migration that moves a session away; `may_have_started`: its target was allowed to train once."""

    step: MigrationStep
    may_have_started: bool = False


@dataclass(frozen=True, slots=True)
class MovedTo:
    """Describe the migration that a session is the target of, and the save that its run continues from.

    `began_below`: its command reported a step below that of the save, so that it did not continue from it.
    """

    step: MigrationStep
    resume_from: str
    saved_step: int | None = None
    began_below: bool = False


def idles_on_purpose(step: MigrationStep) -> bool:
    """Whether both machines of a migration may be idle: one pauses or boots while the other works."""
    return step not in OVER and step is not _M.CHECKED


def as_source(normal: Sequence[NodeInstruction], moved: MovedFrom | None) -> tuple[str, ...]:
    """Return what the source's agent is asked. `normal` is what it would be asked without the migration."""
    if moved is None or moved.step in OVER:
        return tuple(normal)
    if moved.step is _M.READY and _I.STOP not in normal:
        return (_I.SAVE, _I.UPLOAD, _I.PAUSE)
    if moved.step in _PAUSED or (moved.step is _M.ENDING and moved.may_have_started):
        return (_I.PAUSE, *([_I.STOP] if _I.STOP in normal else []))
    return tuple(normal)


def as_target(normal: Sequence[NodeInstruction], moved: MovedTo | None) -> tuple[str, ...]:
    """Return what the target's agent is asked: from where to continue, and from the right step on to start."""
    if moved is None or moved.step is _M.DONE:
        return tuple(normal)
    if moved.began_below and moved.step not in _PROVED:
        # It would write steps that its save has already, and a job that ignores CHECKPOINT would overwrite that save.
        return (_I.PAUSE, *([_I.STOP] if _I.STOP in normal else []))
    if moved.step is _M.ENDING:
        # It must not save: the run continues on the source.
        return (_I.STOP,) if _I.STOP in normal else tuple(normal)
    # After a failed move a target that still reports is all that is left of the run, so it may start, too.
    may_start = moved.step in TARGET_MAY_RUN or moved.step is _M.FAILED
    resume = [f"{RESUME}{moved.resume_from}"] if may_start or moved.step is _M.VERIFIED else []
    if resume and moved.saved_step is not None:
        resume.append(f"{RESUME_STEP}{moved.saved_step}")
    return (*normal, *resume, *([START] if may_start else []))
