"""Name how far the job of a session is: its `run=` command, from the queue to its end."""

from __future__ import annotations

from ledger.kernel.vocabulary import Vocabulary


class JobState(Vocabulary):
    """Say how far a job is, with the same word on the card, in lists, in REST and in webhooks."""

    QUEUED = "queued", "its command has not started yet"
    RUNNING = "running", "its command runs"
    SAVING = "saving", "its command saves a checkpoint"
    SUCCEEDED = "succeeded", "its command ended with exit code 0"
    FAILED = "failed", "its command ended with an error, or its start-up failed"
    MOVED = "moved", "its run continues on another machine"
    INTERRUPTED = "interrupted", "its machine ended or was lost before its command did"


#: Words that no job leaves.
JOB_OVER = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.MOVED, JobState.INTERRUPTED})
