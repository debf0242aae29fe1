"""Name the steps of a migration: the move of a run from one machine to another."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.kernel.vocabulary import Vocabulary


class MigrationStep(Vocabulary):
    """Say which step of a migration was finished last. The label says what people read of it."""

    CHECKED = "checked", "the checkpoint is verified at its store"
    PROVISIONED = "provisioned", "the new machine is approved and created"
    READY = "ready", "the new machine is ready"
    VERIFIED = "verified", "the run has saved and paused, and that save is verified at its store"
    PRESENT = "present", "the run may start on the new machine"
    STARTED = "started", "the run has started on the new machine"
    ADVANCED = "advanced", "the run is past its save"
    DESTROYED = "destroyed", "the old machine is gone"
    DONE = "done", "the move is recorded"
    #: The target is to be ended; the source resumes at once, or when a target that may have started is gone.
    ENDING = "ending", "the new machine is being ended"
    FAILED = "failed", "the move failed"


_M = MigrationStep

#: Steps that no migration leaves.
OVER = frozenset({_M.DONE, _M.FAILED})
#: From here on the target may train, so the source must not.
TARGET_MAY_RUN = frozenset({_M.PRESENT, _M.STARTED, _M.ADVANCED, _M.DESTROYED})
#: In these a lost source gets no replacement: the target takes over.
TAKES_OVER = frozenset({_M.PROVISIONED, _M.READY, _M.VERIFIED}) | TARGET_MAY_RUN

#: Step → what may follow it. A source that is lost lets the target start from the save that was verified last, even
#: after the move failed: until its end is ordered, the target is all that is left of the run. A target that is lost
#: before the source's end is ordered leaves the run to the source.
FOLLOWS: Mapping[MigrationStep, frozenset[MigrationStep]] = {
    _M.CHECKED: frozenset({_M.PROVISIONED, _M.ENDING}),
    _M.PROVISIONED: frozenset({_M.READY, _M.PRESENT, _M.ENDING}),
    _M.READY: frozenset({_M.VERIFIED, _M.PRESENT, _M.ENDING}),
    _M.VERIFIED: frozenset({_M.PRESENT, _M.ENDING}),
    _M.PRESENT: frozenset({_M.STARTED, _M.ENDING, _M.FAILED}),
    _M.STARTED: frozenset({_M.ADVANCED, _M.ENDING, _M.FAILED}),
    _M.ADVANCED: frozenset({_M.DESTROYED, _M.ENDING}),
    _M.DESTROYED: frozenset({_M.DONE}),
    _M.DONE: frozenset(),
    _M.ENDING: frozenset({_M.FAILED, _M.PRESENT}),
    _M.FAILED: frozenset(),
}
