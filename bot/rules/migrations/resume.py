"""Name the place that a run continues from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bot.rules.checkpoints.resume import address, checkpoint_path
from bot.rules.checkpoints.verification import Newest, StoreLocation
from ledger.kernel.steps.migration_step import TARGET_MAY_RUN, MigrationStep

#: What can stand in one line of `asks`.
_PLAIN: Final = re.compile(r"[!-~]{1,1500}")


def resume_place(location: str, where: StoreLocation, newest: Newest) -> str:
    """Return the checkpoint to continue from: the folder or the file that names its step, else its newest file.

    A name with spaces or other signs can't be handed over in a line, so then it is the place of all checkpoints.
    """
    place = address(where, checkpoint_path(newest.path))
    return place if _PLAIN.fullmatch(place) else location


@dataclass(frozen=True, slots=True)
class Resume:
    """Say that a run continues from a save that another machine made. Without a place it waits for one."""

    place: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The variables that name the save to a command."""
        return {"RESUME_FROM": self.place} if self.place else {}


def resume_of(step: MigrationStep | None, saved_from: str) -> Resume | None:
    """Return how the start-up of a machine resumes a run; `step` is that of the migration that the machine is for.

    Until the run may start there, the start-up waits. A machine that replaces the target later resumes at once.
    """
    if step is None:
        return None
    return Resume(saved_from) if step is MigrationStep.DONE or step in TARGET_MAY_RUN else Resume()
