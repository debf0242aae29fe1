"""List why a session or an instance ended: the code for programs, its label for people, its group, and its grace."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from ledger.kernel.vocabulary import Vocabulary


class EndGroup(Vocabulary):
    """Group the reasons of ends."""

    APPROVED = "approved", "the approved time or amount is used up"
    ORDERED = "ordered", "a person ended it"
    WORK_SUCCEEDED = "work_succeeded", "its work succeeded"
    WORK_FAILED = "work_failed", "its work failed"
    UNUSED = "unused", "idle or unresponsive"
    MOVED = "moved", "part of the move of a run"
    FAILED = "failed", "the instance or its cloud failed"
    NOT_APPROVED = "not_approved", "nothing was launched"


class Grace(StrEnum):
    """Name the grace of the policy that passes between the notification of an end and its order."""

    NONE = "none"
    DONE = "done"
    SILENT = "silent"
    IDLE = "idle"


class EndReason(StrEnum):
    """Say why a session or an instance ended. The value is stored, and REST and `--json` show it."""

    _value_: str
    label: str
    group: EndGroup
    grace: Grace

    def __new__(cls, value: str, label: str = "", group: EndGroup | None = None, grace: Grace = Grace.NONE) -> Self:
        """Make one reason. Only type checkers need the defaults: they take `EndReason(text)` for this call."""
        if not label or group is None:
            raise TypeError(f"{value} needs a label and a group")
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.label, reason.group, reason.grace = label, group, grace
        return reason

    RESERVATION_OVER = "reservation_over", "approved time ended", EndGroup.APPROVED
    BUDGET_CAP = "budget_cap", "approved amount used up", EndGroup.APPROVED
    HOURS_CAP = "hours_cap", "hours limit reached", EndGroup.APPROVED
    OVERSPEND_UNCONFIRMED = "drift_unconfirmed", "higher cost not approved", EndGroup.APPROVED

    ASKED = "asked", "ended on request", EndGroup.ORDERED
    GIVEN_UP = "given_up", "its machine was given up for the one that it moves to", EndGroup.ORDERED
    WRITTEN_OFF = "written_off", "written off by an operator", EndGroup.ORDERED

    COMPLETED = "completed", "completed", EndGroup.WORK_SUCCEEDED, Grace.DONE
    RUN_COMPLETED = "run_completed", "run succeeded", EndGroup.WORK_SUCCEEDED
    WORK_FAILED = "work_failed", "work failed", EndGroup.WORK_FAILED, Grace.DONE
    RUN_FAILED = "run_failed", "run failed", EndGroup.WORK_FAILED
    RUN_TIMEOUT = "run_timeout", "run timed out", EndGroup.WORK_FAILED

    NO_HEARTBEAT = "no_heartbeat", "unresponsive", EndGroup.UNUSED, Grace.SILENT
    IDLE = "idle", "idle", EndGroup.UNUSED, Grace.IDLE

    MIGRATED = "migrated", "its run moved to another machine", EndGroup.MOVED
    MIGRATION_FAILED = "migration_failed", "the move to it failed", EndGroup.MOVED

    LOST = "lost", "lost at its cloud", EndGroup.FAILED
    BROKEN = "broken", "instance failed", EndGroup.FAILED
    BOOT_TIMEOUT = "boot_timeout", "not reachable in time", EndGroup.FAILED
    RESTARTING = "restarting", "restarted by its cloud", EndGroup.FAILED
    STOPPED_THERE = "stopped_there", "stopped by its cloud", EndGroup.FAILED
    OUTBID = "outbid", "outbid", EndGroup.FAILED
    WRONG_GPUS = "wrong_gpus", "wrong GPUs", EndGroup.FAILED
    GPU_MISSING = "gpu_missing", "GPU missing", EndGroup.FAILED
    LOW_GPU_MEMORY = "low_gpu_memory", "too little GPU memory", EndGroup.FAILED
    OLD_DRIVER = "old_driver", "GPU driver too old", EndGroup.FAILED
    DRIVER_BROKEN = "driver_broken", "GPU driver not working", EndGroup.FAILED
    THROTTLED = "throttled", "GPU too slow", EndGroup.FAILED
    NO_LOGIN = "no_login", "login failed", EndGroup.FAILED
    WRONG_HOST_KEY = "wrong_host_key", "SSH host key changed", EndGroup.FAILED
    HOST_KEY_MISMATCH = "host_key_mismatch", "SSH host key isn't the machine's own", EndGroup.FAILED
    BILLED_ABOVE_CAP = "billed_above_cap", "billed above the approved rate", EndGroup.FAILED
    SET_BROKEN = "set_broken", "a machine of its set failed", EndGroup.FAILED

    REJECTED = "rejected", "rejected", EndGroup.NOT_APPROVED
    CANCELLED = "cancelled", "cancelled", EndGroup.NOT_APPROVED
    EXPIRED = "expired", "expired", EndGroup.NOT_APPROVED
    NO_OFFER = "no_offer", "no offer", EndGroup.NOT_APPROVED


def reasons(group: EndGroup) -> frozenset[EndReason]:
    """Return the reasons of one group."""
    return frozenset(reason for reason in EndReason if reason.group is group)


#: Stored reason → how people read it; older releases stored reasons that this one does not know.
END_LABELS: Mapping[str, str] = {reason.value: reason.label for reason in EndReason}
#: The approved end itself, by whichever limit came first.
APPROVED = reasons(EndGroup.APPROVED)
#: Ends that say how the work went.
WENT_WELL = reasons(EndGroup.WORK_SUCCEEDED)
WENT_WRONG = reasons(EndGroup.WORK_FAILED)
#: Ends before the approved one, which are announced with a grace.
EARLY = frozenset(reason for reason in EndReason if reason.grace is not Grace.NONE)
