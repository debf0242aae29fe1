"""Name the steps of the checkpoint check before a termination."""

from __future__ import annotations

from ledger.kernel.vocabulary import Vocabulary


class CheckpointStep(Vocabulary):
    """Say where the checkpoint check of an instance is."""

    SAVING = "saving", "Its agent saves a checkpoint"
    STOPPING = "stopping", "It is stopping, so that its disk stays"
    HELD = "held", "It waits for an answer"
    PASSED = "passed", "Its checkpoint is verified"
    RELEASED = "released", "Somebody ended it without a verified checkpoint"
    DESTROYED = "destroyed", "It ended without a verified checkpoint"


#: Steps in which the termination waits, and steps after which it continues.
WAITS = frozenset({CheckpointStep.SAVING, CheckpointStep.STOPPING, CheckpointStep.HELD})
BEHIND = frozenset({CheckpointStep.PASSED, CheckpointStep.RELEASED, CheckpointStep.DESTROYED})
