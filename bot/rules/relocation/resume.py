"""Name the place that a run continues from, and the place of its own where a new machine saves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.rules.checkpoints.resume import address, checkpoint_path
from bot.rules.checkpoints.verification import Newest, StoreLocation, place
from ledger.kernel.steps.relocation_step import TARGET_MAY_RUN, MigrationStep

#: What can stand in one line of `asks`.
_PLAIN: Final = re.compile(r"[!-~]{1,1500}")
#: How the folder of a target is called, below the place of its run's checkpoints.
_FOLDER: Final = "moved-"


def resume_place(location: str, where: StoreLocation, newest: Newest) -> str:
    """Return the checkpoint to continue from: the folder or the file that names its step, else its newest file.

    A name with spaces or other signs can't be handed over in a line, so then it is the place of all checkpoints.
    """
    path = address(where, checkpoint_path(newest.path))
    return path if _PLAIN.fullmatch(path) else location


def has_folders(location: str | None) -> bool:
    """Whether a place of checkpoints is a folder, and not the URL of one file."""
    where = place(location)
    return where is not None and where.scheme != "https"


def own_place(location: str | None, target: str) -> str | None:
    """Return where the target of a move saves; None where its store has no folders. `target` is its short id.

    It lies below the place of the run's checkpoints: the same credentials write to both, and a look at that place
    finds both.
    """
    where = place(location)
    if where is None or not has_folders(location):
        return None
    return address(where, f"{where.path}/{_FOLDER}{target}".lstrip("/"))


def beside_name(request: str, n: int) -> str:
    """Name the folder of a replacement that runs beside the machine before it; `request` is a short id."""
    return f"{request}-{n}"


@dataclass(frozen=True, slots=True)
class TargetPlace:
    """Describe the place of a target: how far its move is, and from which steps its machines began.

    `began_at` has the lowest step of each of its machines that reported one since its command started. The target may
    have worked from `started_at` to `ended_at`.
    """

    place: str
    step: MigrationStep
    saved_step: int | None
    began_at: Sequence[int] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def counts(self) -> bool:
        """Whether what lies there continues the run. Until the target showed that, it may be another run's beginning.

        After a failed move it counts where the target had continued from the save.
        """
        if self.step in (MigrationStep.ADVANCED, MigrationStep.DESTROYED, MigrationStep.DONE):
            return True
        return bool(self.began_at) and not self.began_below

    @property
    def began_below(self) -> bool:
        """Whether one of its machines began below the save."""
        return bool(self.began_at) and min(self.began_at) < (self.saved_step or 0)

    def hides(self, file: str, at: datetime) -> bool:
        """Whether a file is no checkpoint of the run. `file` is its address, `at` when it was stored.

        A job that ignores CHECKPOINT saves beside the run's own copies. The source was paused while the target could
        work, so whatever was stored then is the target's.
        """
        if self.counts:
            return False
        if file.startswith(f"{self.place}/"):
            return True
        began = self.started_at if self.began_below else None
        return began is not None and began <= at and (self.ended_at is None or at <= self.ended_at)


@dataclass(frozen=True, slots=True)
class Resume:
    """Say that a run continues from a save that another machine made. Without a place it waits for one."""

    place: str = ""
    step: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that name the save to a command."""
        return resume_variables(self.place, self.step)


def resume_variables(saved_from: str, step: int | None) -> dict[str, str]:
    """Return what a command reads to continue: where its checkpoint lies, and its step where that is known."""
    if not saved_from:
        return {}
    return {"RESUME_FROM": saved_from, **({"RESUME_STEP": str(step)} if step is not None else {})}


def resume_of(step: MigrationStep | None, saved_from: str, saved_step: int | None = None) -> Resume | None:
    """Return how the start-up of a machine resumes a run; `step` is that of the migration that the machine is for.

    Until the run may start there, the start-up waits. A machine that replaces the target later resumes at once, also
    where the move failed and the target is all that is left of the run.
    """
    if step is None:
        return None
    may_start = step in (MigrationStep.DONE, MigrationStep.FAILED) or step in TARGET_MAY_RUN
    return Resume(saved_from, saved_step) if may_start else Resume()
