"""Say how far a migration is, in the same words on the cards, in lists and over REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ledger.kernel.steps.relocation_step import MigrationStep

_M = MigrationStep

#: How many steps a migration has for people, and the number of the last finished one.
STEPS: Final = 8
NUMBERS: Final[Mapping[MigrationStep, int]] = {
    _M.CHECKED: 1,
    _M.PROVISIONED: 2,
    _M.READY: 3,
    _M.VERIFIED: 3,
    _M.PRESENT: 4,
    _M.STARTED: 5,
    _M.ADVANCED: 6,
    _M.DESTROYED: 7,
    _M.DONE: 8,
}


def progress_line(step: MigrationStep, note: str, source: str, target: str, *, is_target: bool) -> str:
    """Say how far the move is, on the card of its target or of its source; both are short ids."""
    if step is _M.DONE:
        return f"Its run came from {source}." if is_target else f"Its run moved to {target}."
    what = f"Move from {source}" if is_target else f"Move to {target}"
    if step in (_M.FAILED, _M.ENDING):
        return f"{what}: failed. {note}".rstrip()
    now = "" if note == step.label else f" {note}"
    return f"{what}: {NUMBERS[step]} of {STEPS} steps done, {step.label}.{now}".rstrip()
