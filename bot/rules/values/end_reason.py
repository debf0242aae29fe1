"""The codes of ends that more than one part of the program speaks of: one home, so that they stay the same words."""

from __future__ import annotations

from typing import Final

#: What an owner said of their work, or what a job said of itself.
COMPLETED: Final = "completed"
WORK_FAILED: Final = "work_failed"
#: What a batch run reported of itself; its verdicts say these words where the page of error codes is made from.
RUN_COMPLETED: Final = "run_completed"
RUN_FAILED: Final = "run_failed"
RUN_TIMEOUT: Final = "run_timeout"
#: By the word of a machine's agent, or for lack of it.
NO_HEARTBEAT: Final = "no_heartbeat"
IDLE: Final = "idle"
#: Nobody here ended it.
LOST: Final = "lost"
#: An operator answers for its end, because no key that is set up can look.
WRITTEN_OFF: Final = "written_off"
#: It has other GPUs than were approved.
WRONG_GPUS: Final = "wrong_gpus"

#: Ends that say how the work went.
WENT_WELL: Final = frozenset({COMPLETED, RUN_COMPLETED})
WENT_WRONG: Final = frozenset({WORK_FAILED, RUN_FAILED, RUN_TIMEOUT})
#: The approved end itself, by whichever limit came first.
APPROVED: Final = frozenset({"reservation_over", "budget_cap", "hours_cap", "drift_unconfirmed"})
#: Ends before the approved one, which are announced with a grace.
EARLY: Final = frozenset({NO_HEARTBEAT, IDLE, COMPLETED, WORK_FAILED})
